"""What the end of an answer says of the wait after it, found in its bytes. Pure.

| route | looked for | a tool's wait | a person's |
|---|---|---|---|
| chat (and `/batch`, `/invocations`), completions | `finish_reason` | `tool_calls`, `function_call` | `stop` |
| messages | `stop_reason` | `tool_use` | `end_turn` |
| Cohere's chat | `finish_reason` | `TOOL_CALL` | `COMPLETE` |
| responses | `status`, if `completed`, and `type` of the output items | a call that the client runs | none |

Nothing is parsed. Inside a string of JSON a quote follows a backslash, so no text of a model
looks like a key between two plain ones. Of several keys the last counts: it is the server's, behind
all that a model wrote, which may be raw JSON too (the input of a tool).
"""  # noqa: E501 - a table row

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from tenuto_vllm.retention.held import Wait

MOST_KEPT = 2048
"""Bytes of an answer's end that are looked at. vLLM 0.32 writes about 700 behind the reason."""

_VALUE = re.compile(rb'[ \t\r\n]{0,8}:[ \t\r\n]{0,8}"([A-Za-z_]{1,24})"')
_CALL = re.compile(
    rb'"type"[ \t\r\n]{0,8}:[ \t\r\n]{0,8}'
    rb'"(?:function|custom_tool|local_shell|shell|computer|apply_patch)_call"'
)
# Cheap to look for, unlike a key that every event has.
_CALL_END = b'_call"'
_MOST_HELD = 4 * MOST_KEPT


class Finish(Protocol):
    """Follows the body of one answer."""

    def feed(self, chunk: bytes) -> None:
        """Take the next part of the body."""
        ...

    def wait(self) -> Wait | None:
        """Return what ends the wait after the answer; None where the body does not say it."""
        ...


class _Words(NamedTuple):
    key: bytes
    waits: Mapping[bytes, Wait]


_CHAT = _Words(
    b'"finish_reason"', {b"tool_calls": "tool", b"function_call": "tool", b"stop": "user"}
)
_MESSAGES = _Words(b'"stop_reason"', {b"tool_use": "tool", b"end_turn": "user"})
_COHERE = _Words(b'"finish_reason"', {b"TOOL_CALL": "tool", b"COMPLETE": "user"})
_RESPONSES = _Words(b'"status"', {b"completed": "user"})
_WORDS = {
    "/v1/chat/completions": _CHAT,
    "/v1/chat/completions/batch": _CHAT,
    "/v1/completions": _CHAT,
    "/invocations": _CHAT,
    "/v1/messages": _MESSAGES,
    "/cohere/v2/chat": _COHERE,
}


def finish_of(path: str) -> Finish | None:
    """Return what follows an answer of a route; None for one whose answers say nothing."""
    if path == "/v1/responses":
        return _Items()
    words = _WORDS.get(path)
    return None if words is None else _Reason(words)


class _Reason:
    """Of an answer that names the reason for its end."""

    __slots__ = ("_held", "_parts", "_words")

    def __init__(self, words: _Words) -> None:
        self._words = words
        self._parts: list[bytes] = []
        self._held = 0

    def feed(self, chunk: bytes) -> None:
        # Parts are joined once in many: a stream has one for each token.
        self._parts.append(chunk)
        self._held += len(chunk)
        if self._held > _MOST_HELD:
            self._cut()

    def wait(self) -> Wait | None:
        tail, key = self._cut(), self._words.key
        at = len(tail)
        while (at := tail.rfind(key, 0, at)) >= 0:
            if value := _VALUE.match(tail, at + len(key)):
                return self._words.waits.get(value[1])
        return None

    def _cut(self) -> bytes:
        """Let go of all but the end, and return that."""
        held = b"".join(self._parts)
        self._pass(held)
        tail = held[-MOST_KEPT:]
        self._parts, self._held = [tail], len(tail)
        return tail

    def _pass(self, held: bytes) -> None:
        """See what is about to be let go of; its end is seen again."""


class _Items(_Reason):
    """Of a response, in which the tools to call are items of the output."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        super().__init__(_RESPONSES)
        self._calls = False

    def wait(self) -> Wait | None:
        wait = super().wait()
        return "tool" if wait is not None and self._calls else wait

    def _pass(self, held: bytes) -> None:
        if not self._calls and _CALL_END in held:
            self._calls = _CALL.search(held) is not None
