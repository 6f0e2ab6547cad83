"""Streams that say so when they are not whole.

The first item is pulled within the call that asked for it, so that what fails before it is
tried again in the caller's context, session and timeout, and the stream that is returned
belongs to the response that answered. The price is that a call returns with the first item
in hand instead of the response's head.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, NoReturn

from openai import APIConnectionError, APIError, APITimeoutError, AsyncStream, OpenAIError, Stream

from tenuto.errors import StreamInterrupted
from tenuto.retry.policy import family, is_retryable
from tenuto.streams import observe

_ENDS = frozenset({"response.completed", "response.failed", "response.incomplete", "error"})


def guard(stream: Any, *, of_model: bool) -> None:
    """Have a stream raise `StreamInterrupted` when it breaks off after its first item.

    What fails before the first item raises openai's own error.

    Args:
        stream: openai's `Stream` or `AsyncStream`, not yet iterated.
        of_model: whether a model answers, so that nothing at all is no answer.
    """
    seen = _Seen(stream.response, of_model)
    observe(stream, seen.items.append, seen.end)
    _iterate(stream, _GuardedAsync if isinstance(stream, AsyncStream) else _guarded, seen)


def start(answer: Any) -> None:
    """Pull the first item of an answer that is a `Stream`: what fails before it fails here."""
    if isinstance(answer, Stream):
        for first in _iterator(answer):
            told = _error_in(first, answer)
            if told is not None:
                answer.close()
                raise told
            _iterate(answer, _put_back, first)
            return


async def start_async(answer: Any) -> None:
    """Pull the first item of an answer that is an `AsyncStream`."""
    if isinstance(answer, AsyncStream):
        async for first in _iterator(answer):
            told = _error_in(first, answer)
            if told is not None:
                await answer.close()
                raise told
            _iterate(answer, _PutBackAsync, first)
            return


def _error_in(first: Any, stream: Any) -> APIError | None:
    """Return what a response's error event says, where the call may be tried again for it.

    openai raises the error events of chat streams, and gives those of responses as items.
    """
    if getattr(first, "type", None) != "error":
        return None
    body = {name: getattr(first, name, None) for name in ("code", "message", "param")}
    error = APIError(str(body["message"]), stream.response.request, body=body)
    return error if is_retryable(error) else None


def _iterator(stream: Any) -> Any:
    return stream._iterator


def _iterate(stream: Any, through: Callable[[Any, Any], Any], given: Any) -> None:
    stream._iterator = through(stream._iterator, given)


def is_whole(items: Sequence[Any], *, of_model: bool) -> bool:
    """Tell whether a stream that ended without `[DONE]` had come to its end. Pure.

    | items | whole |
    |---|---|
    | none | unless a model was to answer |
    | a response's events | with `completed`, `failed`, `incomplete` or an error among them |
    | chunks with choices | when each choice has its finish reason, and there is one |
    | others | yes: their end is not known |
    """
    if not items:
        return not of_model
    kinds = {str(getattr(item, "type", None)) for item in items}
    if any(kind.startswith("response.") for kind in kinds):
        return not kinds.isdisjoint(_ENDS)
    chunks = [item.choices or () for item in items if hasattr(item, "choices")]
    choices = [choice for chunk in chunks for choice in chunk]
    ended = {choice.index for choice in choices if choice.finish_reason is not None}
    return not chunks or (bool(ended) and all(choice.index in ended for choice in choices))


def text_of(items: Sequence[Any]) -> str:
    """Return the text in chunks or events, of the first choice. Pure."""
    return "".join(text for text in map(_text, items) if isinstance(text, str))


def _text(item: Any) -> Any:
    choices = getattr(item, "choices", None)
    if choices is None:
        return item.delta if getattr(item, "type", None) == "response.output_text.delta" else None
    for choice in choices:
        if choice.index == 0:
            delta = getattr(choice, "delta", None)
            return getattr(choice, "text", None) if delta is None else delta.content
    return None


class _Seen:
    """What has arrived of one stream."""

    __slots__ = ("done", "ended", "finished", "items", "of_model", "response")

    def __init__(self, response: Any, of_model: bool) -> None:
        self.response = response
        self.of_model = of_model
        self.items: list[Any] = []
        self.ended = self.finished = self.done = False

    def end(self, finished: bool, saw_done: bool) -> None:
        self.ended, self.finished, self.done = True, finished, saw_done

    def check(self) -> None:
        """Raise when a stream that has run to its end was not whole."""
        if not self.done and not is_whole(self.items, of_model=self.of_model):
            raise self.interrupted("without [DONE] or a finish reason") from None

    def fail(self, error: Exception) -> NoReturn:
        """Raise what a reader is told of an error, from within its handler."""
        cause = self._of_openai(error)
        if self.items:
            raise self.interrupted("by an error") from cause
        if cause is error:
            raise error
        raise cause from error

    def interrupted(self, how: str) -> StreamInterrupted:
        return StreamInterrupted(
            f"a stream ended {how} after {len(self.items)} items",
            self.items,
            text_of(self.items),
            self.response.headers.get("x-request-id"),
        )

    def _of_openai(self, error: Exception) -> Exception:
        """Return an HTTP library's error as openai 3 raises it; openai 2 lets it escape."""
        if isinstance(error, OpenAIError):
            return error
        names, request = family(error), self.response.request
        if "TimeoutException" in names:
            wrapped: APIConnectionError = APITimeoutError(request=request)
        elif "RequestError" in names:
            wrapped = APIConnectionError(request=request)
        else:
            return error
        wrapped.__cause__ = error
        return wrapped


def _guarded(inner: Iterator[Any], seen: _Seen) -> Iterator[Any]:
    try:
        for item in inner:
            yield item
            if seen.ended:
                break
    except Exception as error:
        seen.fail(error)
    if seen.finished:
        seen.check()
    else:
        # Its reader has closed it: what follows is theirs.
        yield from inner


class _GuardedAsync:
    __slots__ = ("_inner", "_seen")

    def __init__(self, inner: AsyncIterator[Any], seen: _Seen) -> None:
        self._inner = inner
        self._seen = seen

    def __aiter__(self) -> _GuardedAsync:
        return self

    async def __anext__(self) -> Any:
        seen = self._seen
        if seen.ended:
            return await self._inner.__anext__()
        try:
            return await self._inner.__anext__()
        except StopAsyncIteration:
            seen.check()
            raise
        except Exception as error:
            seen.fail(error)


def _put_back(rest: Iterator[Any], first: Any) -> Iterator[Any]:
    yield first
    yield from rest


class _PutBackAsync:
    __slots__ = ("_held", "_rest")

    def __init__(self, rest: AsyncIterator[Any], first: Any) -> None:
        self._held = [first]
        self._rest = rest

    def __aiter__(self) -> _PutBackAsync:
        return self

    async def __anext__(self) -> Any:
        return self._held.pop() if self._held else await self._rest.__anext__()
