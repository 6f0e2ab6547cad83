"""Server-sent events as OpenAI's clients read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

DONE = b"data: [DONE]\n\n"


def event(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """Return one event with JSON data, in ASCII; `name` is its `event:` line, if any."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()
