"""Anthropic-shaped messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenuto.conformance.answers.said import Said, arguments, pieces


def whole(said: Said) -> dict[str, Any]:
    """Return a `message`."""
    content: list[dict[str, Any]] = [{"type": "text", "text": said.text}] if said.text else []
    content += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
        for call in said.calls
    ]
    return {**_head(said), "content": content, **_stop(said), "usage": _usage(said)}


def events(said: Said) -> Iterator[dict[str, Any]]:
    """Yield the events of a stream."""
    opened: dict[str, Any] = {
        **_head(said),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }
    yield {"type": "message_start", "message": {**opened, "usage": _usage(said)}}
    index = 0
    if said.text:
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces(said.text)]
        yield from _block(index, {"type": "text", "text": ""}, deltas)
        index += 1
    for call in said.calls:
        deltas = [
            {"type": "input_json_delta", "partial_json": piece} for piece in pieces(arguments(call))
        ]
        start: dict[str, Any] = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        yield from _block(index, start, deltas)
        index += 1
    usage = {"output_tokens": said.output_tokens}
    yield {"type": "message_delta", "delta": _stop(said), "usage": usage}
    yield {"type": "message_stop"}


def _block(
    index: int, start: dict[str, Any], deltas: list[dict[str, str]]
) -> Iterator[dict[str, Any]]:
    yield {"type": "content_block_start", "index": index, "content_block": start}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _head(said: Said) -> dict[str, Any]:
    return {"id": f"msg_{said.id}", "type": "message", "role": "assistant", "model": said.model}


def _stop(said: Said) -> dict[str, Any]:
    return {"stop_reason": "tool_use" if said.calls else "end_turn", "stop_sequence": None}


def _usage(said: Said) -> dict[str, int]:
    return {"input_tokens": said.prompt_tokens, "output_tokens": said.output_tokens}
