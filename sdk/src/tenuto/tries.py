"""Telling recorders of each HTTP try of a wrapped client's model calls, as it was on the wire.

Nothing is looked at while the caller waits: references are handed on, to the request's bytes,
the answer's, and its headers. A stream's bytes are kept as they pass, below openai's client and
before they are decoded, so that every way to read an answer is the same here.

A try ends once: with its answer, with its failure, or when it is tried again or dropped.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from typing import Any

from openai._base_client import AsyncAPIClient

from tenuto import process
from tenuto.redirects import sent_with
from tenuto.tried import Sink, Tried, now_s
from tenuto.turn import is_turn

# Replaced as a whole, so that a call sees the one or the other.
sinks: tuple[Sink, ...] = ()

_KEY = "tenuto.tried"


def add(sink: Sink) -> None:
    """Have `sink` told of every try that begins after this."""
    global sinks  # noqa: PLW0603 - one attribute is all that a call looks at
    sinks = (*sinks, sink)


def remove(sink: Sink) -> None:
    """Have `sink` told of no more tries."""
    global sinks  # noqa: PLW0603
    sinks = tuple(one for one in sinks if one != sink)


# The tries of the call that is being made here; openai's own retries add to it.
_CALL: ContextVar[list[Tried] | None] = ContextVar("tenuto_tries", default=None)


def watch(call: Callable[..., Any], *args: Any, **given: Any) -> Any:
    """Make a call, and end its last try with the error that it raises."""
    tries: list[Tried] = []
    token = _CALL.set(tries)
    try:
        return call(*args, **given)
    except BaseException as error:
        _fail(tries, error)
        raise
    finally:
        _CALL.reset(token)


async def watch_async(call: Callable[..., Any], *args: Any, **given: Any) -> Any:
    """Make a call, and end its last try with the error that it raises."""
    tries: list[Tried] = []
    token = _CALL.set(tries)
    try:
        return await call(*args, **given)
    except BaseException as error:
        _fail(tries, error)
        raise
    finally:
        # A coroutine may be closed in another context than it ran in.
        with contextlib.suppress(ValueError):
            _CALL.reset(token)


def _fail(tries: list[Tried], error: BaseException) -> None:
    for tried in tries:
        refused = tried.status is not None and tried.status >= 400
        tried.end(str(tried.status) if refused else type(error).__name__)


def begin(client: Any, options: Any, request: Any) -> None:
    """Note a try of a model call that is about to be sent."""
    try:
        if not is_turn(options.method, options.url):
            return
        sent = sent_with(request)
        before = _CALL.get()
        if before:
            _again(before.pop())
        tried = request.extensions[_KEY] = Tried(request, sent, sinks)
        if before is not None:
            before.append(tried)
        if sent is not None and sent.attempt is not None and sent.attempt.n == 0:
            parent = sent.session.parent
            tried.parent_turn = parent.state.next_turn - 1 if parent is not None else None
        hooks = client._client.event_hooks["response"]
        hook = _headed_async if isinstance(client, AsyncAPIClient) else _headed
        if hook not in hooks:
            hooks.append(hook)
    except Exception:
        process.pass_over("record")


def _again(tried: Tried) -> None:
    """End a try that another follows: without an answer nothing says why."""
    refused = tried.status is not None and tried.status >= 400
    tried.end(str(tried.status) if refused else "Unanswered")


def _headed(response: Any) -> None:
    tried: Tried | None = response.request.extensions.get(_KEY)
    if tried is not None:
        tried.status = response.status_code
        if response.status_code >= 400:
            # Known to be over before openai waits to try again.
            tried.end_s = now_s()


async def _headed_async(response: Any) -> None:
    _headed(response)


def answered(response: Any) -> None:
    """Note the answer of a try: at once when it is there whole, or as it is read."""
    try:
        if response is None:
            return
        tried: Tried | None = response.request.extensions.get(_KEY)
        if tried is None:
            return
        tried.status = response.status_code
        tried.response = response
        if response.is_closed:
            tried.content = response.content
            tried.answer_bytes = len(tried.content)
            tried.end()
            return
        tried.is_streamed = True
        response.stream = _tee(response)(tried, response.stream)
    except Exception:
        process.pass_over("record")


def _tee(response: Any) -> Any:
    # httpx or httpx2: their responses read a stream of their own kinds only.
    http: Any = sys.modules[type(response).__module__.partition(".")[0]]
    is_async = isinstance(response.stream, http.AsyncByteStream)
    return _tee_of(http.AsyncByteStream if is_async else http.SyncByteStream, is_async)


@functools.lru_cache(maxsize=8)
def _tee_of(base: type[Any], is_async: bool) -> type[Any]:
    return type("Tee", (_TeeAsync if is_async else _Tee, base), {})


class _Kept:
    """An answer's stream that keeps what passes."""

    def __init__(self, tried: Tried, inner: Any) -> None:
        self._tried = tried
        self._inner = inner

    def __del__(self) -> None:
        # One that is dropped and never closed.
        self._tried.end()

    @property
    def elapsed(self) -> Any:
        return getattr(self._inner, "elapsed", None)


class _Tee(_Kept):
    def __iter__(self) -> Iterator[bytes]:
        tried = self._tried
        try:
            for chunk in self._inner:
                tried.take(chunk)
                yield chunk
            tried.is_whole = True
        except Exception as error:
            tried.error = type(error).__name__
            raise

    def close(self) -> None:
        try:
            self._inner.close()
        finally:
            self._tried.end()


class _TeeAsync(_Kept):
    _chunks: AsyncIterator[bytes] | None = None

    def __aiter__(self) -> _TeeAsync:
        self._chunks = self._inner.__aiter__()
        return self

    async def __anext__(self) -> bytes:
        assert self._chunks is not None
        try:
            chunk = await self._chunks.__anext__()
        except StopAsyncIteration:
            self._tried.is_whole = True
            raise
        except BaseException as error:
            self._tried.error = type(error).__name__
            raise
        self._tried.take(chunk)
        return chunk

    async def aclose(self) -> None:
        try:
            await self._inner.aclose()
        finally:
            self._tried.end()
