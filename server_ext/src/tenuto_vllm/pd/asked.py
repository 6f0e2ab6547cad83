"""What a client asks, as far as it decides where its prompt is computed. Pure."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from tenuto_vllm.asgi.routes import GENERATION_PATHS
from tenuto_vllm.carriers import Said, in_body, in_headers

Headers = Sequence[tuple[bytes, bytes]]

# Of these an answer to the first token alone leaves the prompt as the whole answer needs it.
_SPLIT_PATHS = frozenset({"/v1/chat/completions", "/v1/completions"})
_WHOLE = ("echo", "best_of", "use_beam_search", "prompt_embeds")
# Each of these asks for something even as 0; some releases cut a prompt by its answer's length.
_GIVEN = ("prompt_logprobs", "truncate_prompt_tokens")
# Beyond any model, and still a float.
_MOST = 10**9
_PLAIN = "The body must be JSON in plain UTF-8, without a byte order mark, and not too deep."
_TEXTS = ("messages", "prompt", "input", "system", "tools", "instructions")


class Asked(NamedTuple):
    """One model call.

    Attributes:
        path: of the route.
        fields: of the body.
        said: what it says of itself.
        size: of its prompt, characters, or tokens where it was sent as tokens.
        is_tokens: which of both.
        is_stream: its answer comes in parts.
        wants_usage: a stream is to say at its end what was used.
        may_split: its prompt can be computed elsewhere.
    """

    path: str
    fields: Mapping[str, Any]
    said: Said
    size: int
    is_tokens: bool
    is_stream: bool
    wants_usage: bool
    may_split: bool

    @property
    def tokens(self) -> Sequence[Any] | None:
        """Its prompt, where it was sent as tokens."""
        return _tokens(self.fields)

    @property
    def output_tokens(self) -> int | None:
        """Longest answer that is wanted, tokens; None where it is not said."""
        for name in ("max_completion_tokens", "max_tokens"):
            value = self.fields.get(name)
            if type(value) is int and value > 0:
                return min(value, _MOST)
        return None


class Unread(ValueError):
    """A body that a server may read and we do not; the message is a sentence."""


def read(path: str, headers: Headers, body: bytes) -> Asked | None:
    """Return what a request asks; None for one that the servers will have to refuse themselves.

    Raises:
        Unread: they might take it, and what it says of transfers with it.
    """
    if path not in GENERATION_PATHS:
        return None
    # A server reads UTF-16, UTF-32 and lone surrogates too; behind them nothing can be written.
    if b"\0" in body or body.startswith(BOM_UTF8):
        raise Unread(_PLAIN)
    try:
        told: Any = json.loads(body.decode())
    except json.JSONDecodeError:
        return None
    except (ValueError, RecursionError) as error:
        raise Unread(_PLAIN) from error
    if not isinstance(told, dict):
        return None
    fields = cast("dict[str, Any]", told)
    said = in_headers(headers)
    if said.markers is None:
        said = in_body(body, headers)
    size, is_tokens = _size(fields)
    options = fields.get("stream_options")
    return Asked(
        path=path,
        fields=fields,
        said=said,
        size=size,
        is_tokens=is_tokens,
        is_stream=fields.get("stream") is True,
        wants_usage=isinstance(options, dict)
        and cast("dict[str, Any]", options).get("include_usage") is True,
        may_split=path in _SPLIT_PATHS and _is_one(fields),
    )


def _is_one(fields: Mapping[str, Any]) -> bool:
    """Tell whether a request is of one prompt and one answer, with nothing told of the prompt."""
    if fields.get("n") not in (None, 1) or any(fields.get(name) for name in _WHOLE):
        return False
    if any(fields.get(name) is not None for name in _GIVEN):
        return False
    return not isinstance(fields.get("prompt"), list) or _tokens(fields) is not None


def _tokens(fields: Mapping[str, Any]) -> list[Any] | None:
    """Return the prompt where it is one of tokens."""
    prompt = fields.get("prompt")
    if not isinstance(prompt, list):
        return None
    tokens = cast("list[Any]", prompt)
    return tokens if tokens and type(tokens[0]) is int else None


def _size(fields: Mapping[str, Any]) -> tuple[int, bool]:
    if (tokens := _tokens(fields)) is not None:
        return len(tokens), True
    return sum(_characters(fields.get(name)) for name in _TEXTS), False


def _characters(value: object) -> int:
    """Return the length of all texts in a value, keys left out; it may be as deep as JSON is."""
    count, left = 0, [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            count += len(one)
        elif isinstance(one, list):
            left += cast("list[Any]", one)
        elif isinstance(one, dict):
            left += cast("dict[str, Any]", one).values()
    return count
