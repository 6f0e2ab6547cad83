"""What an answer says, whole or streamed, in any of the shapes of model servers. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tenuto.shape import is_list, is_object

_WORD = re.compile(r"[^A-Za-z0-9_.-]+")


class Said(NamedTuple):
    """An answer; None or empty where it does not say.

    Attributes:
        input_tokens: of the prompt, cached ones included.
        calls: names of the tools that it calls.
        first_at: offset of the end of the first event that carries a piece of the answer.
        ended: the API's own end was there.
        error: kind of an error that came in place of the rest.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    text: str = ""
    calls: tuple[str, ...] = ()
    first_at: int | None = None
    ended: bool = False
    error: str | None = None


def read_whole(content: bytes) -> Said:
    """Read an answer that came as one JSON object; one that is none says nothing."""
    reading = _Reading()
    try:
        reading.take(json.loads(content))
    except ValueError:
        return Said()
    return reading.said()._replace(ended=True)


def read_events(content: bytes) -> Said:
    """Read an answer that came as server-sent events, as far as it came."""
    reading, first_at, is_done = _Reading(), None, False
    for end, data in events(content):
        if data == b"[DONE]":
            is_done = True
            continue
        try:
            event = json.loads(data)
        except ValueError:
            continue
        reading.take(event)
        if first_at is None and _carries(event):
            first_at = end
    said = reading.said()
    ended = is_done or said.finish_reason is not None
    return said._replace(first_at=first_at, ended=ended)


def events(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each event as (offset of its end, data)."""
    at, data = 0, b""
    for line in content.splitlines(keepends=True):
        at += len(line)
        stripped = line.rstrip(b"\r\n")
        if stripped.startswith(b"data:"):
            data += (b"\n" if data else b"") + stripped[5:].removeprefix(b" ")
        elif not stripped and data:
            yield at, data
            data = b""


class _Reading:
    """An answer as far as it has been read."""

    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}
        self._finish: str | None = None
        self._text: list[str] = []
        # By their place in the answer: servers repeat a name over chunks.
        self._calls: dict[Any, str] = {}
        self._error: str | None = None

    def said(self) -> Said:
        return Said(
            self._tokens.get("input"),
            self._tokens.get("output"),
            self._tokens.get("cached"),
            self._finish,
            "".join(self._text),
            tuple(self._calls.values()),
            error=self._error,
        )

    def take(self, value: Any) -> None:
        """Read a whole answer or one event."""
        if not is_object(value):
            return
        if value.get("error"):
            self._error = _error(value["error"])
            return
        for name in ("response", "message"):
            self.take(value.get(name))
        kind = str(value.get("type", ""))
        if is_list(value.get("choices")):
            for place, choice in enumerate(_objects(value["choices"])):
                self._choice(choice, place)
        elif value.get("object") == "response":
            self._response(value)
        elif kind.endswith("output_text.delta"):
            self._say(value.get("delta"))
        elif not kind.startswith("response."):
            self._message(value)
        if is_object(value.get("usage")):
            self._usage(value["usage"])

    def _say(self, text: Any) -> None:
        if isinstance(text, str):
            self._text.append(text)

    def _choice(self, choice: Any, place: int) -> None:
        part = choice.get("message") or choice.get("delta")
        if is_object(part):
            self._say(part.get("content"))
            for nth, call in enumerate(_objects(part.get("tool_calls"))):
                function = call.get("function")
                if is_object(function) and function.get("name"):
                    at = choice.get("index", place), call.get("index", nth)
                    self._calls[at] = str(function["name"])
        else:
            self._say(choice.get("text"))
        if choice.get("finish_reason"):
            self._finish = str(choice["finish_reason"])

    def _response(self, value: Any) -> None:
        if value.get("status") in {None, "in_progress", "queued"}:
            return
        self._finish = str(value["status"])
        was_streamed = bool(self._text)
        for at, item in enumerate(_objects(value.get("output"))):
            self._call(item, at)
            if not was_streamed:
                for part in _objects(item.get("content")):
                    self._say(part.get("text"))

    def _message(self, value: Any) -> None:
        """Read a message of Anthropic's, or an event of its stream."""
        blocks = _objects(value.get("content"))
        for at, block in enumerate([value.get("content_block"), value.get("delta"), *blocks]):
            if is_object(block):
                self._say(block.get("text"))
                self._call(block, value.get("index", at))
        for one in (value, value.get("delta")):
            if is_object(one) and one.get("stop_reason"):
                self._finish = str(one["stop_reason"])

    def _call(self, block: Any, at: Any) -> None:
        kind = str(block.get("type", ""))
        if kind == "tool_use" or kind.endswith("_call"):
            self._calls[at] = str(block.get("name") or kind)

    def _usage(self, usage: Any) -> None:
        prompt = _count(usage.get("prompt_tokens", usage.get("input_tokens")))
        output = _count(usage.get("completion_tokens", usage.get("output_tokens")))
        details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
        cached = _count(details.get("cached_tokens")) if is_object(details) else None
        read = _count(usage.get("cache_read_input_tokens"))
        if read is not None:
            # Anthropic counts what was read from and written to its cache beside the rest.
            cached = read
            if prompt is not None:
                prompt += read + (_count(usage.get("cache_creation_input_tokens")) or 0)
        given = {"input": prompt, "output": output, "cached": cached}
        self._tokens |= {name: count for name, count in given.items() if count is not None}


def _carries(event: Any) -> bool:
    if not is_object(event):
        return False
    if str(event.get("type", "")).endswith("delta"):
        return event.get("type") != "message_delta"
    for choice in _objects(event.get("choices")):
        delta = choice.get("delta")
        pieces = [v for k, v in delta.items() if k != "role"] if is_object(delta) else []
        if any((*pieces, choice.get("text"))):
            return True
    return False


def _error(error: Any) -> str:
    given = (error.get("code") or error.get("type")) if is_object(error) else None
    return _WORD.sub("_", str(given or "error"))[:64]


def _objects(value: Any) -> list[Any]:
    return [one for one in value if is_object(one)] if is_list(value) else []


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None
