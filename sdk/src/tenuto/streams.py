"""Watching one of openai's event streams without touching what it yields.

openai 2 and 3 keep the same two seams on a stream object, which stays the object it was:
`_iterator` yields its items, and `_iter_events` the events below them, which end at the end
of the body, or are broken off at `[DONE]`.

What stands in for an async iterator is no generator: of several that are dropped together the
event loop would close each in a task of its own, and one could find the other at it.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from openai import AsyncStream

OnItem = Callable[[Any], object]
OnEnd = Callable[[bool, bool], object]

_log = logging.getLogger("tenuto")


def observe(stream: Any, on_item: OnItem, on_end: OnEnd) -> None:
    """Have every item and the end of a stream told, as long as it is not yet iterated.

    Both are called where the stream is used (also by the garbage collector, in any thread);
    what they raise is passed over.

    Args:
        stream: openai's `Stream` or `AsyncStream`.
        on_item: called with each item before the caller gets it.
        on_end: called once, when the stream has ended, failed, or was closed or dropped,
            with `finished` (it ran to its end without an error) and `saw_done` (it was
            `[DONE]` that ended it; also true where its events cannot be watched).
    """
    watch = _Watch(on_item, on_end)
    events, iterator, response = stream._iter_events, stream._iterator, stream.response
    if _is_async(stream):
        opened = functools.partial(_EventsAsync, watch)
        stream._iterator = _ObservedAsync(watch, iterator)
        watch.hook(response, "aclose", functools.partial(_aclosing, watch, response.aclose))
    else:
        opened = functools.partial(_events, watch)
        stream._iterator = _observed(watch, iterator)
        watch.hook(response, "close", functools.partial(_closing, watch, response.close))

    def open_events() -> Any:
        # Gone once called: what refers to its own stream would keep it for the collector.
        stream.__dict__.pop("_iter_events", None)
        return opened(events())

    stream._iter_events = open_events


def _is_async(stream: Any) -> bool:
    return isinstance(stream, AsyncStream)


class _Watch:
    """What is known of one stream, and who is to be told."""

    __slots__ = ("_ends", "_hook", "on_item", "pulling", "reached_end_of_body")

    def __init__(self, on_item: OnItem, on_end: OnEnd) -> None:
        self.on_item = on_item
        # Taken by who ends it first: the iterating thread, a closing one or the collector.
        self._ends = [on_end]
        self._hook: tuple[dict[str, Any], str, Any] | None = None
        # A response is also closed by its own stream, in the midst of a pull.
        self.pulling = False
        self.reached_end_of_body = False

    def hook(self, response: Any, name: str, method: Any) -> None:
        """Stand in for `response.close`: every way to close a stream goes through it."""
        self._hook = response.__dict__, name, method
        response.__dict__[name] = method

    def item(self, item: Any) -> None:
        if self._ends:
            try:
                self.on_item(item)
            except Exception:
                _pass_over("an item")

    def end(self, finished: bool) -> None:
        try:
            on_end = self._ends.pop()
        except IndexError:
            return
        if self._hook is not None:
            (methods, name, method), self._hook = self._hook, None
            # Another watch may stand in front, and takes both away when it ends.
            if methods.get(name) is method:
                del methods[name]
        try:
            on_end(finished, finished and not self.reached_end_of_body)
        except Exception:
            _pass_over("the end")

    def __del__(self) -> None:
        self.end(finished=False)


def _pass_over(what: str) -> None:
    # A handler or filter of the program's may raise, and no stream may fail by it.
    with contextlib.suppress(Exception):
        _log.debug("tenuto could not read %s of a stream", what, exc_info=True)


def _observed(watch: _Watch, inner: Iterator[Any]) -> Iterator[Any]:
    finished, watch.pulling = False, True
    try:
        for item in inner:
            watch.pulling = False
            watch.item(item)
            yield item
            watch.pulling = True
        finished = True
    finally:
        _close(inner)
        watch.end(finished)


def _events(watch: _Watch, events: Iterator[Any]) -> Iterator[Any]:
    yield from events
    watch.reached_end_of_body = True


class _ObservedAsync:
    __slots__ = ("_inner", "_watch")

    def __init__(self, watch: _Watch, inner: AsyncIterator[Any]) -> None:
        self._watch = watch
        self._inner = inner

    def __aiter__(self) -> _ObservedAsync:
        return self

    async def __anext__(self) -> Any:
        watch = self._watch
        watch.pulling = True
        try:
            item = await self._inner.__anext__()
        except BaseException as error:
            watch.end(finished=isinstance(error, StopAsyncIteration))
            raise
        watch.pulling = False
        watch.item(item)
        return item


class _EventsAsync:
    __slots__ = ("_events", "_watch")

    def __init__(self, watch: _Watch, events: AsyncIterator[Any]) -> None:
        self._watch = watch
        self._events = events

    def __aiter__(self) -> _EventsAsync:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._events.__anext__()
        except StopAsyncIteration:
            self._watch.reached_end_of_body = True
            raise


def _closing(watch: _Watch, close: Callable[[], None]) -> None:
    try:
        close()
    finally:
        if not watch.pulling:
            watch.end(finished=False)


async def _aclosing(watch: _Watch, aclose: Callable[[], Any]) -> None:
    try:
        await aclose()
    finally:
        if not watch.pulling:
            watch.end(finished=False)


def _close(inner: Any) -> None:
    # Another library's iterator may have nothing to close.
    close = getattr(inner, "close", None)
    if close is not None:
        close()
