"""Carrying a scope to where Python does not: threads, executors, bodies of generators.

What is carried is the whole context of the caller, as `asyncio.to_thread` carries it.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterator,
)
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context
from typing import Any, ParamSpec, TypeVar, cast, overload

from tenuto.context import held_open
from tenuto.entries import captured
from tenuto.errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")
Y = TypeVar("Y")


def propagate(fn: Callable[P, R]) -> Callable[P, R]:
    """Return `fn` for a thread, a timer or a callback: each call runs in this context.

    Args:
        fn: a function, a coroutine function, or one that makes a generator.

    Returns:
        The same kind of function. A call made after the scope has been left is in no
        session, as is everything that outlives its scope: open one inside `fn`.

    Raises:
        ConfigError: `fn` cannot be called.
    """
    if not callable(fn):
        raise ConfigError(f"propagate() takes a function, got {type(fn).__name__}")
    context = captured()
    is_generator = inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn)
    called: Callable[..., Any] = _ctxgen(fn) if is_generator else fn

    @functools.wraps(fn)
    def carried(*args: Any, **given: Any) -> Any:
        # A context cannot be entered twice at once, and calls may be.
        return context.copy().run(called, *args, **given)

    @functools.wraps(fn)
    async def carried_on(*args: Any, **given: Any) -> Any:
        return await _drive(context.copy(), _call(called, args, given))

    return cast("Callable[P, R]", carried_on if _makes_coroutine(fn) else carried)


class ContextExecutor(ThreadPoolExecutor):
    """A `ThreadPoolExecutor` in which each call runs in the context that submitted it.

    Also for `loop.run_in_executor` and `loop.set_default_executor`.
    """

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Schedule `fn(*args, **kwargs)`, see `ThreadPoolExecutor.submit`; `map` uses it too."""
        return super().submit(captured().run, fn, *args, **kwargs)


@overload
def ctxgen(source: AsyncIterator[Y]) -> AsyncGenerator[Y, Any]: ...
@overload
def ctxgen(source: Iterator[Y]) -> Generator[Y, Any, Any]: ...
@overload
def ctxgen(source: Callable[P, AsyncIterator[Y]]) -> Callable[P, AsyncGenerator[Y, Any]]: ...
@overload
def ctxgen(source: Callable[P, Iterator[Y]]) -> Callable[P, Generator[Y, Any, Any]]: ...
def ctxgen(source: Any) -> Any:
    """Run the body of a generator in one context of its own, whoever pulls it, and when.

    The body is in the scope that the generator was made in until it ends, is closed or is
    collected, also after that scope has been left. What it opens itself is not its
    consumer's, and what the consumer opens is not the body's.

    Args:
        source: a generator or an async generator, before its first item; or a function
            that makes one, which makes this a decorator.

    Raises:
        ConfigError: `source` is none of these.
    """
    if isinstance(source, AsyncIterator):
        return _AsyncBody(cast("AsyncIterator[Any]", source), *held_open())
    if isinstance(source, Iterator):
        return _Body(cast("Iterator[Any]", source), *held_open())
    if not callable(source) or _makes_coroutine(source):
        raise ConfigError(
            f"ctxgen() takes a generator or a function that makes one, got {type(source).__name__}"
        )

    made: Callable[..., Any] = source

    @functools.wraps(made)
    def make(*args: Any, **given: Any) -> Any:
        return _ctxgen(made(*args, **given))

    return make


_ctxgen = cast("Callable[[Any], Any]", ctxgen)


class _Body(Generator[Y, Any, Any]):
    def __init__(self, body: Iterator[Y], context: Context, leave: Callable[[], None]) -> None:
        self._body: Any = body
        self._context = context
        self._leave = leave

    def __next__(self) -> Y:
        return self._step(next, self._body)

    def send(self, value: Any, /) -> Y:
        return self._step(self._body.send, value)

    def throw(self, *error: Any) -> Y:
        return self._step(self._body.throw, *error)

    def close(self) -> None:
        # Other iterators than generators need none.
        self._step(getattr(self._body, "close", _nothing))
        self._leave()

    def __del__(self) -> None:
        # In the body's context, or the calls of its `finally` would be the collector's.
        self.close()

    def _step(self, method: Callable[..., R], *args: Any) -> R:
        try:
            return self._context.run(method, *args)
        except BaseException:
            if getattr(self._body, "gi_frame", None) is None:
                self._leave()
            raise


class _AsyncBody(AsyncGenerator[Y, Any]):
    def __init__(self, body: AsyncIterator[Y], context: Context, leave: Callable[[], None]) -> None:
        self._body: Any = body
        self._context = context
        self._leave = leave
        self._is_known_to_loop = False

    # Coroutines, which `asyncio.create_task` takes and a generator's own awaitables are not.
    async def __anext__(self) -> Y:
        return await self._step(self._body.__anext__)

    async def asend(self, value: Any, /) -> Y:
        return await self._step(self._body.asend, value)

    async def athrow(self, *error: Any) -> Y:
        return await self._step(self._body.athrow, *error)

    async def aclose(self) -> None:
        await self._step(getattr(self._body, "aclose", _anothing))
        self._leave()

    def __del__(self) -> None:
        # A loop closes those that have begun, in their own context.
        if not self._is_known_to_loop:
            self._leave()

    def __getattr__(self, name: str) -> Any:
        # Loops other than asyncio's look at these when a generator is collected.
        if name.startswith("ag_"):
            return getattr(self._body, name)
        raise AttributeError(name)

    async def _step(self, method: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        try:
            return await _drive(self._context, self._called(method, args))
        except BaseException:
            if getattr(self._body, "ag_frame", None) is None:
                self._leave()
            raise

    async def _called(self, method: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> Any:
        known, (first, last) = self, sys.get_asyncgen_hooks()
        is_new = not self._is_known_to_loop and isinstance(self._body, types.AsyncGeneratorType)
        if not is_new or first is None or last is None:
            return await method(*args)
        # With its first call a generator learns who closes it when it is collected, and
        # its loop learns whom to close at its end: both are to be done in our context.
        self._is_known_to_loop = True
        context, leave = self._context, self._leave

        def collect(body: AsyncIterator[Any]) -> None:
            last(_AsyncBody(body, context, leave))

        sys.set_asyncgen_hooks(lambda _: first(known), collect)
        try:
            awaited = method(*args)
        finally:
            sys.set_asyncgen_hooks(first, last)
        return await awaited


def _nothing() -> None:
    pass


async def _anothing() -> None:
    pass


def _makes_coroutine(fn: Any) -> bool:
    called = fn if isinstance(fn, type) else getattr(fn, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(called)


async def _call(fn: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    return await fn(*args, **given)


@types.coroutine
def _drive(context: Context, steps: Coroutine[Any, Any, R]) -> Generator[Any, Any, R]:
    """Await a coroutine with each of its steps run in `context`, and all in the caller's task."""
    advance: Callable[[Any], Any] = steps.send
    given: Any = None
    try:
        while True:
            try:
                awaited = context.run(advance, given)
            except StopIteration as done:
                return done.value
            try:
                given = yield awaited
                advance = steps.send
            except BaseException as error:
                advance, given = steps.throw, error
    finally:
        # An error that leaves through here would hold this frame, and it the error.
        given = None
