"""A generator's body under `ctxgen` is in one scope, however it is pulled and however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextvars import Context, ContextVar, copy_context
from typing import Any

import pytest

import tenuto
from tenuto.context import current_session

Seen = list[str | None]


def here() -> str | None:
    session = current_session()
    return session.session_id if session else None


class Bodies:
    """Bodies that note where they are: at each item and in their `finally`."""

    def __init__(self) -> None:
        self.seen: Seen = []
        self.ended: Seen = []

    async def stream(self, own: tenuto.Run | None = None) -> AsyncGenerator[int, Any]:
        async with own or contextlib.nullcontext():
            try:
                for item in range(4):
                    self.seen.append(here())
                    yield item
                    await asyncio.sleep(0)
            finally:
                await asyncio.sleep(0)
                self.ended.append(here())

    def items(self, own: tenuto.Run | None = None) -> Generator[int, Any, str]:
        with own or contextlib.nullcontext():
            try:
                for item in range(4):
                    self.seen.append(here())
                    yield item
            finally:
                self.ended.append(here())
        return "done"


async def settle() -> None:
    gc.collect()
    for _ in range(8):
        await asyncio.sleep(0)


async def whole(stream: AsyncGenerator[int, Any]) -> None:
    async for _ in stream:
        assert here() is None


async def broken_off_and_closed(stream: AsyncGenerator[int, Any]) -> None:
    async for item in stream:
        assert here() is None
        if item == 1:
            break
    assert here() is None
    await stream.aclose()


async def closed_by_another_task(stream: AsyncGenerator[int, Any]) -> None:
    await anext(stream)
    await asyncio.create_task(stream.aclose())  # type: ignore[arg-type]


async def pulled_by_one_task_per_item(stream: AsyncGenerator[int, Any]) -> None:
    with contextlib.suppress(StopAsyncIteration):
        while True:
            await asyncio.create_task(anext(stream))  # type: ignore[arg-type]
            assert here() is None


async def pulled_with_time_limits(stream: AsyncGenerator[int, Any]) -> None:
    with contextlib.suppress(StopAsyncIteration):
        while True:
            await asyncio.wait_for(anext(stream), 5)
            assert here() is None


async def pulled_behind_a_shield(stream: AsyncGenerator[int, Any]) -> None:
    with contextlib.suppress(StopAsyncIteration):
        while True:
            await asyncio.shield(anext(stream))
            assert here() is None


async def cancelled_mid_pull(stream: AsyncGenerator[int, Any]) -> None:
    await anext(stream)
    pull = asyncio.create_task(anext(stream))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    pull.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pull


async def failed_from_outside(stream: AsyncGenerator[int, Any]) -> None:
    await anext(stream)
    with pytest.raises(ZeroDivisionError):
        await stream.athrow(ZeroDivisionError())


async def sent_to(stream: AsyncGenerator[int, Any]) -> None:
    assert await stream.asend(None) == 0
    assert await asyncio.create_task(stream.asend("x")) == 1  # type: ignore[arg-type]
    await stream.aclose()


ENDS = [
    whole,
    broken_off_and_closed,
    closed_by_another_task,
    pulled_by_one_task_per_item,
    pulled_with_time_limits,
    pulled_behind_a_shield,
    cancelled_mid_pull,
    failed_from_outside,
    sent_to,
]


@pytest.mark.parametrize("left_first", [False, True], ids=["scope open", "scope left"])
@pytest.mark.parametrize("consume", ENDS)
@pytest.mark.anyio
async def test_a_stream_stays_in_the_scope_that_it_was_made_in(
    consume: Callable[[AsyncGenerator[int, Any]], Any], left_first: bool
) -> None:
    bodies = Bodies()
    agent = tenuto.run().agent("streamer")
    with agent:
        stream = tenuto.ctxgen(bodies.stream())
        if not left_first:
            await asyncio.create_task(consume(stream), context=Context())
    if left_first:
        await consume(stream)
    assert set(bodies.seen) == {agent.session_id}
    assert bodies.ended == [agent.session_id]
    assert here() is None


@pytest.mark.parametrize("consume", ENDS)
@pytest.mark.anyio
async def test_a_scope_that_a_stream_opens_is_its_own_and_nobody_elses(
    consume: Callable[[AsyncGenerator[int, Any]], Any],
) -> None:
    bodies, own = Bodies(), tenuto.run()
    await consume(tenuto.ctxgen(bodies.stream)(own))
    await settle()
    assert set(bodies.seen) == {own.session_id}
    assert bodies.ended == [own.session_id]
    assert here() is None


@pytest.mark.parametrize("in_cycle", [False, True])
@pytest.mark.anyio
async def test_a_stream_that_is_collected_ends_in_its_own_scope(in_cycle: bool) -> None:
    bodies = Bodies()
    with tenuto.run() as run:
        stream: Any = tenuto.ctxgen(bodies.stream())
    with tenuto.run() as other:
        await anext(stream)
        if in_cycle:
            cycle: list[Any] = [stream, stream._body]
            cycle.append(cycle)
            del cycle
        del stream
        await settle()
        assert here() == other.session_id
    assert bodies.ended == [run.session_id]


def test_a_stream_left_open_at_the_loops_end_ends_in_its_own_scope() -> None:
    bodies, run = Bodies(), tenuto.run()
    kept: list[Any] = []

    async def main() -> None:
        with run:
            kept.append(tenuto.ctxgen(bodies.stream()))
        await anext(kept[0])

    with tenuto.run():
        asyncio.run(main())
    assert bodies.ended == [run.session_id]


@pytest.mark.anyio
async def test_two_interleaved_streams_in_one_task_never_mix() -> None:
    left, right = Bodies(), Bodies()
    runs = [tenuto.run(), tenuto.run()]
    with runs[0]:
        one = tenuto.ctxgen(left.stream())
    two = tenuto.ctxgen(right.stream(runs[1]))
    for _ in range(4):
        with tenuto.run() as consumer:
            await anext(one)
            assert here() == consumer.session_id
            await anext(two)
            assert here() == consumer.session_id
    for stream in (one, two):
        await stream.aclose()
    assert set(left.seen + left.ended) == {runs[0].session_id}
    assert set(right.seen + right.ended) == {runs[1].session_id}


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
    assert run._entries == []


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
        assert run._entries == []
    finally:
        gc.enable()
