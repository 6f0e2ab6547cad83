"""What an answer says, whole or streamed, in any of the shapes of model servers. Pure."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tenuto.recording.body import canonical
from tenuto.shape import is_list, is_object
from tenuto.trace.event import MOST_TOKENS

# A kind of error or end is a word; what is none might be a text.
_WORD = re.compile(r"[^A-Za-z0-9_.-]+")
_WORD_LENGTH = 64
# In a text within JSON these would have backslashes before their quotes.
_USAGE = re.compile(rb'(?<!\\)"usage"\s*:\s*(?=\{)')
_FINISH = re.compile(rb'(?<!\\)"(?:finish_reason|stop_reason|status)"\s*:\s*"([a-z_]{1,32})"')
_USAGE_BYTES = 1 << 16


class Said(NamedTuple):
    """An answer; None or empty where it does not say.

    Attributes:
        input_tokens: of the prompt, cached ones included.
        calls: names of the tools that it calls.
        output_bytes: of its text, its reasoning and the arguments of its calls of tools.
        first_at: offset of the end of the first event that carries a piece of the answer.
        ended: the API's own end was there.
        error: kind of an error that came in place of the rest.
        response_id: by which a later request may say that it goes on from this.
        output: canonical bytes of what such a request goes on with.
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
    output_bytes: int | None = None
    response_id: str | None = None
    output: tuple[bytes, ...] = ()


def read_whole(content: bytes) -> Said:
    """Read an answer that came as one JSON object; one that is none says nothing."""
    reading = _Reading()
    try:
        reading.take(json.loads(content))
    except ValueError:
        return Said()
    return reading.said()._replace(ended=True)


def read_cut(content: bytes) -> Said:
    """Read an answer of one JSON object without its middle: its counts of tokens and its end."""
    reading = _Reading()
    for found in _USAGE.finditer(content):
        text = content[found.end() : found.end() + _USAGE_BYTES].decode("utf-8", "replace")
        with contextlib.suppress(ValueError):
            reading.take({"usage": json.JSONDecoder().raw_decode(text)[0]})
    ends = _FINISH.findall(content)
    return reading.said()._replace(finish_reason=ends[-1].decode() if ends else None)


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
        self._bytes = 0
        self._id: str | None = None
        self._output: tuple[bytes, ...] = ()

    def said(self) -> Said:
        return Said(
            self._tokens.get("input"),
            self._tokens.get("output"),
            self._tokens.get("cached"),
            self._finish,
            "".join(self._text),
            tuple(self._calls.values()),
            error=self._error,
            output_bytes=self._bytes or None,
            response_id=self._id,
            output=self._output,
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
        elif kind.startswith("response."):
            self._delta(kind, value.get("delta"))
        else:
            self._message(value)
        if is_object(value.get("usage")):
            self._usage(value["usage"])

    def _delta(self, kind: str, delta: Any) -> None:
        if kind.endswith("output_text.delta"):
            self._say(delta)
        elif kind.endswith(("text.delta", "arguments.delta")):
            self._weigh(delta)

    def _say(self, text: Any) -> None:
        if isinstance(text, str):
            self._text.append(text)
            self._weigh(text)

    def _weigh(self, written: Any) -> None:
        text = json.dumps(written) if written and is_object(written) else written
        if isinstance(text, str):
            self._bytes += len(text.encode("utf-8", "surrogatepass"))

    def _choice(self, choice: Any, place: int) -> None:
        part = choice.get("message") or choice.get("delta")
        if is_object(part):
            self._say(part.get("content"))
            # Servers that name reasoning both ways say it twice.
            self._weigh(part.get("reasoning") or part.get("reasoning_content"))
            for nth, call in enumerate(_objects(part.get("tool_calls"))):
                function = call.get("function")
                if not is_object(function):
                    continue
                self._weigh(function.get("arguments"))
                if function.get("name"):
                    at = choice.get("index", place), call.get("index", nth)
                    self._calls[at] = str(function["name"])
        else:
            self._say(choice.get("text"))
        if choice.get("finish_reason"):
            self._finish = _word(choice["finish_reason"])

    def _response(self, value: Any) -> None:
        if value.get("status") in {None, "in_progress", "queued"}:
            return
        self._finish = _word(value["status"])
        was_streamed = bool(self._bytes)
        output = _objects(value.get("output"))
        self._id = str(value["id"]) if value.get("id") else None
        self._output = tuple(map(canonical, output))
        for at, item in enumerate(output):
            self._call(item, at)
            if not was_streamed:
                self._weigh(item.get("arguments"))
                for part in _objects(item.get("content")):
                    self._say(part.get("text"))

    def _message(self, value: Any) -> None:
        """Read a message of Anthropic's, or an event of its stream."""
        blocks = _objects(value.get("content"))
        for at, block in enumerate([value.get("content_block"), value.get("delta"), *blocks]):
            if is_object(block):
                self._say(block.get("text"))
                for name in ("thinking", "partial_json", "input"):
                    self._weigh(block.get(name))
                self._call(block, value.get("index", at))
        for one in (value, value.get("delta")):
            if is_object(one) and one.get("stop_reason"):
                self._finish = _word(one["stop_reason"])

    def _call(self, block: Any, at: Any) -> None:
        kind = str(block.get("type", ""))
        if kind == "tool_use" or kind.endswith("_call"):
            self._calls[at] = str(block.get("name") or kind)

    def _usage(self, usage: Any) -> None:
        prompt = _count(_either(usage, "prompt_tokens", "input_tokens"))
        output = _count(_either(usage, "completion_tokens", "output_tokens"))
        details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
        cached = _count(details.get("cached_tokens")) if is_object(details) else None
        read = _count(usage.get("cache_read_input_tokens"))
        cached = cached if read is None else read
        if prompt is not None and usage.get("prompt_tokens") is None:
            # Anthropic counts what was read from and written to its cache beside the rest.
            written = _count(usage.get("cache_creation_input_tokens"))
            prompt = _count(prompt + (read or 0) + (written or 0))
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
    return _word(given or "error")


def _word(value: Any) -> str:
    return _WORD.sub("_", str(value)[:_WORD_LENGTH])


def _objects(value: Any) -> list[Any]:
    return [one for one in value if is_object(one)] if is_list(value) else []


def _either(usage: Any, *names: str) -> Any:
    return next((usage[name] for name in names if usage.get(name) is not None), None)


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else None
