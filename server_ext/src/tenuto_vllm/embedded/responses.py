"""`/v1/responses`: the body it reads and the JSON it answers."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from tenuto_vllm.embedded.ask import Ask, Reply, make_ask
from tenuto_vllm.embedded.errors import RequestError
from tenuto_vllm.embedded.fields import as_object, positive
from tenuto_vllm.embedded.messages import read_input
from tenuto_vllm.embedded.settings import EngineSettings
from tenuto_vllm.embedded.sse import event
from tenuto_vllm.embedded.tokens import render


def read(body: Mapping[str, Any], settings: EngineSettings) -> Ask:
    """Return what a body asks for.

    Raises:
        RequestError: a field that cannot be followed.
    """
    for name in ("previous_response_id", "conversation"):
        if body.get(name) is not None:
            raise RequestError(
                f"{name}: the embedded engine stores no responses; send the whole input.",
                param=name,
            )
    prompt = render(read_input(body.get("input"), body.get("instructions")))
    most = positive(body, "max_output_tokens")
    return make_ask(body, settings, prompt, most, _schema(body.get("text")))


def _schema(text: object) -> object:
    options = as_object(text or {}, "text")
    asked = as_object(options.get("format") or {}, "text.format")
    match asked.get("type"):
        case "json_schema":
            return as_object(asked.get("schema") or {}, "text.format.schema")
        case "json_object":
            return {"type": "object"}
        case _:
            return None


def whole(reply: Reply) -> dict[str, Any]:
    """Return the answer as one object; at the token limit its status is `incomplete`."""
    cut = reply.ask.finish == "length"
    usage = {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": reply.cached_tokens},
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.prompt_tokens + reply.output_tokens,
    }
    return {
        **_head(reply),
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": _calls(reply) or [_message(reply, "completed", [_part(reply.ask.output)])],
        "usage": usage,
    }


async def events(reply: Reply, pieces: AsyncIterator[str]) -> AsyncIterator[bytes]:
    """Yield the answer as the Responses event sequence.

    Like vLLM's, it ends with `response.completed` at the token limit too: openai's client
    builds its final response from that event alone. Tool calls come when the last of them is
    decoded.
    """
    numbers = itertools.count()
    item_id, text = f"msg_{reply.tag}", reply.ask.output

    def named(name: str, /, **fields: Any) -> bytes:
        kind = f"response.{name}"
        return event({"type": kind, "sequence_number": next(numbers), **fields}, kind)

    begun: dict[str, Any] = {**_head(reply), "status": "in_progress", "output": [], "usage": None}
    at: dict[str, Any] = {"item_id": item_id, "output_index": 0, "content_index": 0}
    yield named("created", response=begun)
    yield named("in_progress", response=begun)
    if reply.ask.calls:
        async for _ in pieces:
            pass
        for index, item in enumerate(_calls(reply)):
            said, of = item["arguments"], {"output_index": index, "item_id": item["id"]}
            begun_call = {**item, "arguments": "", "status": "in_progress"}
            yield named("output_item.added", output_index=index, item=begun_call)
            yield named("function_call_arguments.delta", **of, delta=said)
            yield named("function_call_arguments.done", **of, arguments=said, name=item["name"])
            yield named("output_item.done", output_index=index, item=item)
        yield named("completed", response=whole(reply))
        return
    started = _message(reply, "in_progress", [])
    yield named("output_item.added", output_index=0, item=started)
    yield named("content_part.added", **at, part=_part(""))
    async for piece in pieces:
        yield named("output_text.delta", **at, delta=piece, logprobs=[])
    yield named("output_text.done", **at, text=text, logprobs=[])
    yield named("content_part.done", **at, part=_part(text))
    ended = _message(reply, "completed", [_part(text)])
    yield named("output_item.done", output_index=0, item=ended)
    yield named("completed", response=whole(reply))


def _head(reply: Reply) -> dict[str, Any]:
    return {
        "id": f"resp_{reply.tag}",
        "object": "response",
        "created_at": reply.created_s,
        "model": reply.ask.model,
        "error": None,
        "incomplete_details": None,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def _calls(reply: Reply) -> list[dict[str, Any]]:
    return [
        {
            "id": f"fc_{reply.tag}_{index}",
            "call_id": reply.call_id(index),
            "type": "function_call",
            "status": "completed",
            "name": call.name,
            "arguments": json.dumps(call.arguments),
        }
        for index, call in enumerate(reply.ask.calls)
    ]


def _message(reply: Reply, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"msg_{reply.tag}",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
