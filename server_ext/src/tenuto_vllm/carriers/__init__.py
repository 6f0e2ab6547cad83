"""What a request says of itself, whatever carries it. Pure.

The first carrier in this order that gives a session wins whole; nothing is mixed from two:

| carrier | where |
|---|---|
| `headers` | the headers of protocol 1 |
| `alias` | header names of other programs and routers |
| `body` | `agent_hint`, `session_id` and `session_params` in a JSON body |
| `vllm_xargs` | `agentic_context`, then `session_id`, in that field of a JSON body |
| `baggage` | `session.id` and `tenuto.*` in the W3C header |
"""

from __future__ import annotations

from tenuto_vllm.carriers.request import in_body, in_headers, is_json
from tenuto_vllm.carriers.said import Carrier, Said
from tenuto_vllm.carriers.values import fits, foreign_id

__all__ = ["Carrier", "Said", "fits", "foreign_id", "in_body", "in_headers", "is_json"]
