"""Scopes reach threads, executors and the bodies of generators, and leave nothing behind."""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import tenuto
from tenuto.context import current_session


def here() -> str | None:
    session = current_session()
    return session.session_id if session else None


async def ahere() -> str | None:
    await asyncio.sleep(0)
    return here()


def generated() -> Iterator[str | None]:
    yield here()
    yield here()


async def agenerated() -> AsyncIterator[str | None]:
    yield here()
    await asyncio.sleep(0)
    yield here()


class Tool:
    def method(self) -> str | None:
        return here()

    def __call__(self) -> str | None:
        return here()


class Made:
    def __init__(self) -> None:
        self.seen = here()


class MadeAsync(Made):
    async def __call__(self) -> None:
        raise NotImplementedError


class AsyncTool:
    async def __call__(self) -> str | None:
        return await ahere()


def in_thread(fn: Callable[[], Any]) -> Any:
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.append(fn()))
    thread.start()
    thread.join()
    return seen[0]


WAYS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "function": (here, lambda fn: fn()),
    "partial": (functools.partial(here), lambda fn: fn()),
    "method": (Tool().method, lambda fn: fn()),
    "callable": (Tool(), lambda fn: fn()),
    "class": (Made, lambda fn: fn().seen),
    "class of async callables": (MadeAsync, lambda fn: fn().seen),
    "coroutine function": (ahere, lambda fn: asyncio.run(fn())),
    "async callable": (AsyncTool(), lambda fn: asyncio.run(fn())),
    "generator function": (generated, lambda fn: list(fn())[1]),
    "async generator function": (agenerated, lambda fn: asyncio.run(last_of(fn()))),
}


async def last_of(stream: AsyncIterator[Any]) -> Any:
    return [item async for item in stream][-1]


@pytest.mark.parametrize("name", WAYS)
def test_whatever_can_be_called_is_in_the_scope_that_it_was_propagated_in(name: str) -> None:
    fn, call = WAYS[name]
    with tenuto.run() as run, run.agent("planner") as planner:
        carried = tenuto.propagate(fn)
        assert in_thread(lambda: call(carried)) == planner.session_id
        with tenuto.run():
            assert call(carried) == planner.session_id
    assert here() is None


@pytest.mark.parametrize("name", WAYS)
def test_what_is_called_after_its_scope_was_left_is_in_no_session(name: str) -> None:
    fn, call = WAYS[name]
    with tenuto.run():
        carried = tenuto.propagate(fn)
    assert in_thread(lambda: call(carried)) is None
    with tenuto.run():
        assert call(carried) is None


def test_a_propagated_function_is_of_the_same_kind_and_keeps_its_name() -> None:
    assert inspect.iscoroutinefunction(tenuto.propagate(ahere))
    for fn in (here, ahere, generated, agenerated):
        assert tenuto.propagate(fn).__name__ == fn.__name__
    assert tenuto.ctxgen(generated).__name__ == "generated"
    assert tenuto.ctxgen(agenerated).__name__ == "agenerated"


def test_one_propagated_function_may_run_in_many_threads_at_once() -> None:
    met = threading.Barrier(8)

    def work(extra: int) -> tuple[int, str | None]:
        met.wait()
        with run.agent("inner"):
            met.wait()
        return extra, here()

    with tenuto.run() as run, ThreadPoolExecutor(8) as pool:
        carried = tenuto.propagate(work)
        results = list(pool.map(carried, range(8)))
        assert results == [(i, run.session_id) for i in range(8)]


@pytest.mark.anyio
async def test_one_propagated_coroutine_function_may_be_awaited_many_times_at_once() -> None:
    met = asyncio.Barrier(8)

    async def work(instance: int) -> bool:
        async with run.agent("inner", instance=instance) as inner:
            await met.wait()
            seen = await ahere()
            await met.wait()
        return seen == inner.session_id and here() == run.session_id

    with tenuto.run() as run:
        carried = tenuto.propagate(work)
        assert await asyncio.gather(*map(carried, range(8))) == [True] * 8


def test_errors_of_a_propagated_function_pass_through() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("of the user")

    with pytest.raises(ValueError, match="of the user"):
        asyncio.run(tenuto.propagate(fail)())


@pytest.mark.anyio
async def test_a_propagated_coroutine_is_cancelled_as_its_own_task_is() -> None:
    seen: list[Any] = []

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append(here())
            raise

    with tenuto.run() as run:
        carried = tenuto.propagate(wait)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await carried()
    assert seen == [run.session_id]


@pytest.mark.anyio
async def test_a_propagated_coroutine_that_is_cancelled_frees_what_it_held() -> None:
    class Held:
        pass

    async def wait() -> None:
        held = Held()
        refs.append(weakref.ref(held))
        await asyncio.sleep(60)

    refs: list[Any] = []
    gc.disable()
    try:
        task = asyncio.create_task(tenuto.propagate(wait)())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        del task
        await asyncio.sleep(0)
        assert refs[0]() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("fn", [None, 3, "here"])
def test_what_cannot_be_called_cannot_be_propagated(fn: Any) -> None:
    with pytest.raises(tenuto.ConfigError, match="propagate"):
        tenuto.propagate(fn)


@pytest.mark.parametrize("source", [None, 3, ahere])
def test_what_makes_no_generator_is_none(source: Any) -> None:
    with pytest.raises(tenuto.ConfigError, match="ctxgen"):
        tenuto.ctxgen(source)


def test_an_executor_runs_each_call_in_the_context_that_submitted_it() -> None:
    with tenuto.ContextExecutor(max_workers=2) as pool:
        runs = [tenuto.run() for _ in range(20)]
        futures = []
        for run in runs:
            with run:
                futures.append(pool.submit(here))
                assert [*pool.map(lambda _: here(), range(3))] == [run.session_id] * 3
                assert futures[-1].result() == run.session_id
        assert pool.submit(here).result() is None


@pytest.mark.anyio
async def test_an_executor_serves_a_loop_as_its_own_and_as_its_default() -> None:
    loop = asyncio.get_running_loop()
    with tenuto.ContextExecutor() as pool:
        loop.set_default_executor(pool)
        with tenuto.run() as run:
            for executor in (pool, None):
                assert await loop.run_in_executor(executor, here) == run.session_id
            assert await asyncio.to_thread(here) == run.session_id
        assert await loop.run_in_executor(None, here) is None
    loop.set_default_executor(ThreadPoolExecutor())


def test_an_executor_passes_arguments_and_errors_on() -> None:
    with tenuto.ContextExecutor() as pool:
        assert pool.submit(dict, fn=1, context=2).result() == {"fn": 1, "context": 2}
        with pytest.raises(ZeroDivisionError):
            pool.submit(divmod, 1, 0).result()


def test_work_in_a_plain_executor_is_in_no_session_and_never_in_a_strangers() -> None:
    with ThreadPoolExecutor(1) as pool:
        with tenuto.run():
            assert pool.submit(here).result() is None
            carried = pool.submit(tenuto.propagate(here))
            assert carried.result() is not None
        with tenuto.run():
            assert pool.submit(here).result() is None


def test_what_a_consumer_propagates_is_in_its_scope_and_not_in_its_generators() -> None:
    def body() -> Iterator[Callable[[], str | None]]:
        with tenuto.run() as inner:
            ids.append(inner.session_id)
            yield tenuto.propagate(here)

    ids: list[str] = []
    for carried in body():
        assert in_thread(carried) == carried() == ids[-1]
        assert in_thread(tenuto.propagate(here)) is None
    with tenuto.run() as outer:
        for carried in body():
            assert in_thread(carried) == carried() == ids[-1]
            assert in_thread(tenuto.propagate(here)) == here() == outer.session_id
    gc.collect()
    assert in_thread(carried) is None
