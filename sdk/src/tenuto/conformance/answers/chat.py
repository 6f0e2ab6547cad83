"""Chat completions and completions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenuto.conformance.answers.said import Said, arguments, pieces

_CREATED = 1_750_000_000


def whole(said: Said) -> dict[str, Any]:
    """Return a `chat.completion`."""
    message: dict[str, Any] = {"role": "assistant", "content": said.text or None}
    if said.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": arguments(call)},
            }
            for call in said.calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": _reason(said), "logprobs": None}
    return {**_head(said, "chat.completion"), "choices": [choice], "usage": _usage(said)}


def chunks(said: Said, with_usage: bool) -> Iterator[dict[str, Any]]:
    """Yield the chunks of a chat stream."""
    head = _head(said, "chat.completion.chunk")
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in pieces(said.text)]
    for index, call in enumerate(said.calls):
        opened = {"name": call.name, "arguments": ""}
        start = {"index": index, "id": call.id, "type": "function", "function": opened}
        deltas.append({"tool_calls": [start]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            for piece in pieces(arguments(call))
        ]
    for delta in deltas:
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": _reason(said)}]}
    if with_usage:
        yield {**head, "choices": [], "usage": _usage(said)}


def whole_completion(said: Said) -> dict[str, Any]:
    """Return a `text_completion`."""
    choice = {"index": 0, "text": said.text, "finish_reason": "stop", "logprobs": None}
    return {**_head(said, "text_completion"), "choices": [choice], "usage": _usage(said)}


def completion_chunks(said: Said) -> Iterator[dict[str, Any]]:
    """Yield the chunks of a completions stream."""
    parts = pieces(said.text)
    for piece in parts:
        reason = "stop" if piece is parts[-1] else None
        choice = {"index": 0, "text": piece, "finish_reason": reason, "logprobs": None}
        yield {**_head(said, "text_completion"), "choices": [choice]}


def _head(said: Said, kind: str) -> dict[str, Any]:
    prefix = "cmpl" if kind == "text_completion" else "chatcmpl"
    return {
        "id": f"{prefix}-{said.id}",
        "object": kind,
        "created": _CREATED,
        "model": said.model,
    }


def _reason(said: Said) -> str:
    return "tool_calls" if said.calls else "stop"


def _usage(said: Said) -> dict[str, int]:
    return {
        "prompt_tokens": said.prompt_tokens,
        "completion_tokens": said.output_tokens,
        "total_tokens": said.prompt_tokens + said.output_tokens,
    }
