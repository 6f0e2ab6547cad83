"""`/v1/completions`: the body it reads and the JSON it answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, cast

from tenuto_vllm.embedded.ask import Ask, Reply, make_ask
from tenuto_vllm.embedded.chat import answer_schema
from tenuto_vllm.embedded.errors import RequestError
from tenuto_vllm.embedded.fields import positive
from tenuto_vllm.embedded.settings import EngineSettings
from tenuto_vllm.embedded.sse import DONE, event

# Block hashes pack ids into 32 bits; no vocabulary is near it.
_TOKEN_IDS = range(2**32)


def read(body: Mapping[str, Any], settings: EngineSettings) -> Ask:
    """Return what a body asks for.

    Raises:
        RequestError: a field that cannot be followed.
    """
    schema = answer_schema(body.get("response_format"))
    most = positive(body, "max_tokens")
    return make_ask(body, settings, _read_prompt(body.get("prompt")), most, schema)


def _read_prompt(prompt: object) -> str | Sequence[int]:
    """Return a text or token ids; a batch of one is that one."""
    if isinstance(prompt, list):
        items = cast("list[Any]", prompt)
        if len(items) == 1 and isinstance(items[0], str | list):
            prompt = cast("object", items[0])
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list):
        ids = cast("list[Any]", prompt)
        if all(type(token) is int and token in _TOKEN_IDS for token in ids):
            return ids
    raise RequestError(
        "prompt must be one string or one list of token ids, each in [0, 2**32).", param="prompt"
    )


def whole(reply: Reply) -> dict[str, Any]:
    """Return the answer as one object."""
    choices = [_choice(reply.ask.output, reply.ask.finish)]
    return {**_head(reply), "choices": choices, "usage": reply.usage()}


async def events(reply: Reply, pieces: AsyncIterator[str]) -> AsyncIterator[bytes]:
    """Yield the answer as chunks: each piece, the finish reason, `[DONE]`."""
    async for piece in pieces:
        yield event({**_head(reply), "choices": [_choice(piece, None)]})
    yield event({**_head(reply), "choices": [_choice("", reply.ask.finish)]})
    if reply.ask.include_usage:
        yield event({**_head(reply), "choices": [], "usage": reply.usage()})
    yield DONE


def _head(reply: Reply) -> dict[str, Any]:
    return {
        "id": f"cmpl-{reply.tag}",
        "object": "text_completion",
        "created": reply.created_s,
        "model": reply.ask.model,
    }


def _choice(text: str, finish: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
