"""Which rank a request goes to. Pure: no clock, no asyncio, no logging."""

from __future__ import annotations

from tenuto_vllm.placement.content import Content
from tenuto_vllm.placement.ledger import Ledger
from tenuto_vllm.placement.pending import Pending
from tenuto_vllm.placement.place import home_of, open_ranks, place
from tenuto_vllm.placement.rendezvous import by_hash

__all__ = ["Content", "Ledger", "Pending", "by_hash", "home_of", "open_ranks", "place"]
