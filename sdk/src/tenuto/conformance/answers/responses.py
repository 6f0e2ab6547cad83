"""Responses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenuto.conformance.answers.said import Said, arguments, pieces
from tenuto.conformance.tools import ToolCall


def whole(said: Said) -> dict[str, Any]:
    """Return a completed `response`."""
    return {**_response(said, "completed"), "output": _output(said), "usage": _usage(said)}


def events(said: Said) -> Iterator[dict[str, Any]]:
    """Yield the events of a stream, numbered."""
    for number, event in enumerate(_events(said)):
        yield {**event, "sequence_number": number}


def _events(said: Said) -> Iterator[dict[str, Any]]:
    opened: dict[str, Any] = {**_response(said, "in_progress"), "output": [], "usage": None}
    yield {"type": "response.created", "response": opened}
    yield {"type": "response.in_progress", "response": opened}
    for index, item in enumerate(_output(said)):
        at = {"output_index": index, "item_id": item["id"]}
        started = {**item, "status": "in_progress"}
        started |= {"content": []} if item["type"] == "message" else {"arguments": ""}
        yield {"type": "response.output_item.added", "output_index": index, "item": started}
        if item["type"] == "message":
            yield from _words(said.text, at)
        else:
            for piece in pieces(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", **at, "delta": piece}
            done = {"arguments": item["arguments"], "name": item["name"]}
            yield {"type": "response.function_call_arguments.done", **at, **done}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": whole(said)}


def _words(text: str, at: dict[str, Any]) -> Iterator[dict[str, Any]]:
    at = {**at, "content_index": 0}
    yield {"type": "response.content_part.added", **at, "part": _part("")}
    for piece in pieces(text):
        yield {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **at, "text": text, "logprobs": []}
    yield {"type": "response.content_part.done", **at, "part": _part(text)}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _output(said: Said) -> list[dict[str, Any]]:
    words: dict[str, Any] = {
        "id": f"msg_{said.id}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [_part(said.text)],
    }
    return [*([words] if said.text else []), *(_call(call) for call in said.calls)]


def _call(call: ToolCall) -> dict[str, Any]:
    namespace = {"namespace": call.namespace} if call.namespace else {}
    return {
        **namespace,
        "id": f"fc_{call.id.removeprefix('call_')}",
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": arguments(call),
        "status": "completed",
    }


def _response(said: Said, status: str) -> dict[str, Any]:
    return {
        "id": f"resp_{said.id}",
        "object": "response",
        "created_at": 1_750_000_000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": said.model,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
    }


def _usage(said: Said) -> dict[str, Any]:
    return {
        "input_tokens": said.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": said.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": said.prompt_tokens + said.output_tokens,
    }
