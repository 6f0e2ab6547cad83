"""An answer on its way through: what it says of tokens, and what it keeps to itself. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from tenuto_vllm.pd.stages import PARAMS

_END = b"\n\n"
_ERROR = (b'data: {"error"', b'data: {"object":"error"')
_USED = b'"usage":{'
_NO_CHOICES = b'"choices":[]'
_DONE = b"data: [DONE]"


class Usage(NamedTuple):
    """What an answer says was used, in tokens; `cached` is None from a server that is not to tell.

    That takes `--enable-prompt-tokens-details`.
    """

    prompt: int
    output: int
    cached: int | None


def usage(told: object) -> Usage | None:
    """Return the usage of an answer; None where it says none."""
    held = _mapping(_mapping(told).get("usage"))
    prompt = held.get("prompt_tokens", held.get("input_tokens"))
    if type(prompt) is not int:
        return None
    details = _mapping(held.get("prompt_tokens_details") or held.get("input_tokens_details"))
    output = held.get("completion_tokens", held.get("output_tokens"))
    cached = details.get("cached_tokens")
    return Usage(
        prompt,
        output if type(output) is int else 0,
        cached if type(cached) is int else None,
    )


class Whole(NamedTuple):
    """A whole answer.

    Attributes:
        usage: what it says was used; None where it says nothing.
        transfer: its transfer parameters; None where it has none.
        written: the tokens of its one choice; None where it does not tell them.
        body: the answer without its transfer.
    """

    usage: Usage | None
    transfer: Mapping[str, Any] | None
    written: Sequence[Any] | None
    body: bytes


def whole(body: bytes) -> Whole:
    """Read a whole answer."""
    try:
        told: Any = json.loads(body)
    except (ValueError, RecursionError):
        return Whole(None, None, None, body)
    fields = _mapping(told)
    transfer = _mapping(fields.get(PARAMS))
    if not transfer:
        return Whole(usage(fields), None, None, body)
    # A lone surrogate is no UTF-8, so what is not ASCII stays escaped.
    kept = json.dumps({**fields, PARAMS: None}).encode()
    return Whole(usage(fields), transfer, _written(fields.get("choices")), kept)


def _written(choices: object) -> Sequence[Any] | None:
    listed = cast("list[object]", choices) if isinstance(choices, list) else []
    tokens = _mapping(listed[0]).get("token_ids") if len(listed) == 1 else None
    return cast("list[Any]", tokens) if isinstance(tokens, list) else None


class Stream:
    """Server-sent events that pass through.

    Args:
        wants_usage: the client has asked for the event that tells the usage.
        holds: events that are looked at before the first is passed on.
    """

    def __init__(self, *, wants_usage: bool, holds: int) -> None:
        self.usage: Usage | None = None
        self.failed = False
        self._wants_usage = wants_usage
        self._left = holds
        self._open = b""
        self._out: list[bytes] = []

    def feed(self, part: bytes) -> bytes:
        """Take a part of the body; return what of it and of those before goes on."""
        events = (self._open + part).split(_END)
        self._open = events.pop()
        for event in events:
            if self._left > 0:
                self._left -= 1
                if event.startswith(_ERROR):
                    self.failed = True
                elif event.startswith(_DONE):
                    self._left = 0
            if not self._is_ours(event):
                self._out.append(event + _END)
        if self._left > 0:
            return b""
        out, self._out = b"".join(self._out), []
        return out

    def end(self) -> bytes:
        """Return what was held back."""
        rest, self._out, self._open = b"".join([*self._out, self._open]), [], b""
        return rest

    def _is_ours(self, event: bytes) -> bool:
        """Read an event that tells the usage; tell whether only we have asked for it."""
        if _USED not in event:
            return False
        try:
            told = json.loads(event.partition(b"data:")[2])
        except (ValueError, RecursionError):
            return False
        # Those of the Messages and Responses dialects hold it one level down.
        inner = _mapping(told)
        inner = _mapping(inner.get("response")) or inner
        self.usage = usage(inner) or self.usage
        return not self._wants_usage and _NO_CHOICES in event


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
