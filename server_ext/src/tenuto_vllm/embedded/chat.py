"""`/v1/chat/completions`: the body it reads and the JSON it answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from tenuto_vllm.embedded.ask import Ask, Reply, make_ask
from tenuto_vllm.embedded.fields import as_object, positive
from tenuto_vllm.embedded.messages import read_messages
from tenuto_vllm.embedded.settings import EngineSettings
from tenuto_vllm.embedded.sse import DONE, event
from tenuto_vllm.embedded.tokens import render


def read(body: Mapping[str, Any], settings: EngineSettings) -> Ask:
    """Return what a body asks for.

    Raises:
        RequestError: a field that cannot be followed.
    """
    prompt = render(read_messages(body.get("messages")))
    most = positive(body, "max_completion_tokens", "max_tokens")
    return make_ask(body, settings, prompt, most, answer_schema(body.get("response_format")))


def answer_schema(response_format: object) -> object:
    """Return the schema that a `response_format` asks for; None if it asks for text."""
    if response_format is None:
        return None
    fields = as_object(response_format, "response_format")
    match fields.get("type"):
        case "json_schema":
            named = as_object(fields.get("json_schema"), "response_format.json_schema")
            return as_object(named.get("schema") or {}, "response_format.json_schema.schema")
        case "json_object":
            return {"type": "object"}
        case _:
            return None


def whole(reply: Reply) -> dict[str, Any]:
    """Return the answer as one object."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.ask.output, "refusal": None}
    if reply.ask.calls:
        message |= {"content": None, "tool_calls": _calls(reply)}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(reply)}
    return {**_head(reply, "chat.completion"), "choices": [choice], "usage": reply.usage()}


async def events(reply: Reply, pieces: AsyncIterator[str]) -> AsyncIterator[bytes]:
    """Yield the answer as chunks: the role, each piece, the finish reason, `[DONE]`.

    Tool calls come when the last of them is decoded, a chunk each.
    """
    # Not before the first piece: the time to the first chunk is the time of the prefill.
    opening = {"role": "assistant", "content": ""}
    async for piece in pieces:
        if opening:
            yield _chunk(reply, opening)
            opening = {}
        if not reply.ask.calls:
            yield _chunk(reply, {"content": piece})
    for index, call in enumerate(_calls(reply)):
        yield _chunk(reply, {"tool_calls": [{"index": index, **call}]})
    yield _chunk(reply, {}, _finish(reply))
    if reply.ask.include_usage:
        head = _head(reply, "chat.completion.chunk")
        yield event({**head, "choices": [], "usage": reply.usage()})
    yield DONE


def _calls(reply: Reply) -> list[dict[str, Any]]:
    return [
        {
            "id": reply.call_id(index),
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
        }
        for index, call in enumerate(reply.ask.calls)
    ]


def _finish(reply: Reply) -> str:
    return "tool_calls" if reply.ask.calls else reply.ask.finish


def _head(reply: Reply, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{reply.tag}",
        "object": kind,
        "created": reply.created_s,
        "model": reply.ask.model,
    }


def _chunk(reply: Reply, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return event({**_head(reply, "chat.completion.chunk"), "choices": [choice]})
