"""What the recording server answers, in each API's shape: whole, and as stream events."""

from __future__ import annotations

import json
from typing import Any

from tenuto.conformance.answers import chat, messages, other, responses
from tenuto.conformance.answers.said import Said
from tenuto.conformance.prompts import Kind

__all__ = ["Said", "other", "streamed", "whole"]

_WHOLE = {
    "chat": chat.whole,
    "completions": chat.whole_completion,
    "responses": responses.whole,
    "messages": messages.whole,
}


def whole(kind: Kind, said: Said) -> dict[str, Any]:
    """Return an answer as one JSON object."""
    return _WHOLE[kind](said)


def streamed(kind: Kind, said: Said, *, with_usage: bool = False) -> list[bytes]:
    """Return an answer as server-sent events, one element an event.

    Args:
        kind: the API.
        said: what the answer says.
        with_usage: the request asks a chat stream for its usage.
    """
    if kind in {"responses", "messages"}:
        events = responses.events(said) if kind == "responses" else messages.events(said)
        return [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events]
    chunks = chat.chunks(said, with_usage) if kind == "chat" else chat.completion_chunks(said)
    return [*(f"data: {json.dumps(c)}\n\n".encode() for c in chunks), b"data: [DONE]\n\n"]
