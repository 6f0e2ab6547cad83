"""A generator's body under `ctxgen` is in one scope, however it is pulled and however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator, Callable
from contextvars import Context
from typing import Any

import pytest

import tenuto
from tests.bodies import Bodies, here


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
