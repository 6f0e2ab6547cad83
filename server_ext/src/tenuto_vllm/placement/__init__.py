"""Which rank a request goes to. Pure: no clock, no asyncio, no logging."""

from __future__ import annotations

from tenuto_vllm.placement.place import home_of, place
from tenuto_vllm.placement.recent import Recent
from tenuto_vllm.placement.rendezvous import by_hash

__all__ = ["Recent", "by_hash", "home_of", "place"]
