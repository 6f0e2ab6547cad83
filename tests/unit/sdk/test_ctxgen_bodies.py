"""What a body under `ctxgen` starts, holds and shows, and that it is a generator like any other."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from contextvars import Context, ContextVar, copy_context
from typing import Any

import pytest

import tenuto
from tests.bodies import Bodies, Seen, here


@pytest.mark.anyio
async def test_what_a_streams_body_starts_is_in_its_scope_until_the_stream_ends() -> None:
    release = asyncio.Event()

    async def child() -> Seen:
        before = here()
        await release.wait()
        return [before, here()]

    @tenuto.ctxgen
    async def stream() -> AsyncIterator[Any]:
        yield [await asyncio.gather(ahere(), ahere()), await asyncio.to_thread(here)]
        yield asyncio.create_task(child())
        yield None

    async def ahere() -> str | None:
        await asyncio.sleep(0)
        return here()

    with tenuto.run() as run:
        made = stream()
    id_ = run.session_id
    with tenuto.run():
        assert await anext(made) == [[id_, id_], id_]
        task = await anext(made)
        await asyncio.sleep(0)
        await made.aclose()
        release.set()
        assert await task == [id_, None]


@pytest.mark.anyio
async def test_a_body_that_is_pulled_twice_at_once_goes_on_as_a_plain_one() -> None:
    bodies = Bodies()
    with tenuto.run() as run:
        stream = tenuto.ctxgen(bodies.stream())
    await anext(stream)
    first = asyncio.create_task(anext(stream))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="already running"):
        await anext(stream)
    await first
    await stream.aclose()
    assert set(bodies.seen + bodies.ended) == {run.session_id}


@pytest.mark.anyio
async def test_variables_of_others_stay_with_the_body_too() -> None:
    var: ContextVar[str] = ContextVar("var", default="unset")

    @tenuto.ctxgen
    async def stream() -> AsyncIterator[str]:
        token = var.set("body's")
        try:
            yield var.get()
            yield var.get()
        finally:
            # Raises in any other context than the one it was set in.
            var.reset(token)

    made = stream()
    var.set("consumer's")
    assert await asyncio.create_task(anext(made)) == "body's"  # type: ignore[arg-type]
    assert var.get() == "consumer's"
    assert await anext(made) == "body's"
    await asyncio.create_task(made.aclose())  # type: ignore[arg-type]


def test_a_generator_stays_in_the_scope_that_it_was_made_in_whichever_thread_pulls() -> None:
    bodies = Bodies()
    with tenuto.run() as run:
        made = tenuto.ctxgen(bodies.items())
    with tenuto.run() as other:
        assert next(made) == 0
        assert here() == other.session_id
        for action in (lambda: next(made), lambda: made.send("x"), made.close):
            thread = threading.Thread(target=action)
            thread.start()
            thread.join()
    assert bodies.seen == [run.session_id] * 3
    assert bodies.ended == [run.session_id]


@pytest.mark.parametrize("own", [False, True])
def test_a_generator_ends_in_its_own_scope_when_it_is_collected(own: bool) -> None:
    bodies, run = Bodies(), tenuto.run()
    with run if not own else contextlib.nullcontext():
        made = tenuto.ctxgen(bodies.items)(run if own else None)
    with tenuto.run() as other:
        next(made)
        del made
        gc.collect()
        assert here() == other.session_id
    assert bodies.ended == [run.session_id]


def test_a_stream_shows_of_itself_what_a_plain_one_shows() -> None:
    made: Any = tenuto.ctxgen(Bodies().stream())
    assert made.ag_code is Bodies.stream.__code__
    assert (made.ag_running, made.ag_await) == (False, None)
    assert not hasattr(made, "gi_code")


def test_a_generators_protocol_is_whole() -> None:
    made = tenuto.ctxgen(Bodies().items())
    assert next(made) == 0
    with pytest.raises(ZeroDivisionError):
        made.throw(ZeroDivisionError())
    with pytest.raises(StopIteration):
        next(made)
    made.close()

    def outer() -> Iterator[Any]:
        yield (yield from tenuto.ctxgen(Bodies().items()))

    assert list(outer()) == [0, 1, 2, 3, "done"]
    assert list(tenuto.ctxgen(iter([1, 2]))) == [1, 2]


@pytest.mark.anyio
async def test_iterators_that_are_no_generators_are_driven_too() -> None:
    class Stream:
        def __init__(self) -> None:
            self.left = 2

        def __aiter__(self) -> Stream:
            return self

        async def __anext__(self) -> str | None:
            await asyncio.sleep(0)
            self.left -= 1
            if self.left < 0:
                raise StopAsyncIteration
            return here()

    with tenuto.run() as run:
        made = tenuto.ctxgen(Stream())
        dropped = tenuto.ctxgen(Stream())
    assert [item async for item in made] == [run.session_id] * 2
    await made.aclose()
    assert await anext(dropped) == run.session_id
    del dropped
    assert run._entries == {}


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.anyio
async def test_what_keeps_a_bodys_context_is_in_no_session_once_the_body_has_ended(
    fails: bool,
) -> None:
    def items() -> Iterator[Context]:
        yield copy_context()
        if fails:
            raise ZeroDivisionError

    async def stream() -> AsyncIterator[Context]:
        for context in items():
            yield context

    with tenuto.run() as run:
        made, amade = tenuto.ctxgen(items()), tenuto.ctxgen(stream())
    kept = [next(made), await anext(amade)]
    assert [context.run(here) for context in kept] == [run.session_id] * 2
    with pytest.raises(ZeroDivisionError if fails else StopIteration):
        next(made)
    with pytest.raises(ZeroDivisionError if fails else StopAsyncIteration):
        await anext(amade)
    assert [context.run(here) for context in kept] == [None, None]


def test_a_body_that_pulls_itself_fails_as_a_plain_one_and_goes_on() -> None:
    def items() -> Iterator[str | None]:
        with pytest.raises((ValueError, RuntimeError)):
            next(made)
        yield here()

    with tenuto.run() as run:
        made = tenuto.ctxgen(items())
    assert next(made) == run.session_id


def test_what_a_generator_held_is_free_once_it_is_dropped() -> None:
    class Held:
        pass

    def items() -> Iterator[Any]:
        held = Held()
        refs.append(weakref.ref(held))
        yield 1

    refs: list[Any] = []
    gc.disable()
    try:
        with tenuto.run() as run:
            for make in (items, tenuto.ctxgen(items)):
                with run.agent("a"):
                    made = make()
                next(made)
                del made
            tenuto.ctxgen(items())
            tenuto.ctxgen(Bodies().stream())
            assert [ref() for ref in refs] == [None, None]
        assert here() is None
        assert run._entries == {}
    finally:
        gc.enable()
