"""The table of docs/identity.md: what each boundary of Python does to the session in scope."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

import anyio.from_thread
import anyio.to_thread
import pytest

import tenuto
from tenuto.context import current_session

Boundary = Callable[[Callable[[], str | None]], Awaitable[str | None]]
PAGE = Path(__file__).parents[3] / "docs/identity.md"


def here() -> str | None:
    session = current_session()
    return session.session_id if session else None


async def ahere() -> str | None:
    await asyncio.sleep(0)
    return here()


async def awaited(fn: Any) -> Any:
    return await ahere()


async def gathered(fn: Any) -> Any:
    return (await asyncio.gather(ahere()))[0]


async def in_a_task(fn: Any) -> Any:
    return await asyncio.create_task(ahere())


async def in_a_group(fn: Any) -> Any:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(ahere())
    return task.result()


async def limited(fn: Any) -> Any:
    return await asyncio.wait_for(ahere(), 5)


async def shielded(fn: Any) -> Any:
    return await asyncio.shield(ahere())


async def called_soon(fn: Any) -> Any:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(lambda: future.set_result(fn()))
    return await future


async def called_later(fn: Any) -> Any:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.001, lambda: future.set_result(fn()))
    return await future


async def done_callback(fn: Any) -> Any:
    future, task = asyncio.get_running_loop().create_future(), asyncio.create_task(ahere())
    task.add_done_callback(lambda _: future.set_result(fn()))
    return await future


async def to_thread(fn: Any) -> Any:
    return await asyncio.to_thread(fn)


async def anyio_to_thread(fn: Any) -> Any:
    return await anyio.to_thread.run_sync(fn)


async def anyio_from_thread(fn: Any) -> Any:
    return await anyio.to_thread.run_sync(lambda: anyio.from_thread.run(ahere))


async def threadsafe(fn: Any) -> Any:
    loop = asyncio.get_running_loop()
    return await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(ahere(), loop).result())


async def own_loop(fn: Any) -> Any:
    return await asyncio.to_thread(lambda: asyncio.run(ahere()))


async def in_a_pool(fn: Any) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return await asyncio.wrap_future(pool.submit(fn))


async def mapped(fn: Any) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return next(pool.map(lambda _: fn(), [0]))


async def run_in_executor(fn: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, fn)


async def bare_thread(fn: Any) -> Any:
    return await started(lambda work: threading.Thread(target=work), fn)


async def timer(fn: Any) -> Any:
    return await started(lambda work: threading.Timer(0, work), fn)


async def called_soon_threadsafe(fn: Any) -> Any:
    loop, future = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
    threading.Thread(
        target=lambda: loop.call_soon_threadsafe(lambda: future.set_result(fn()))
    ).start()
    return await future


async def started(make: Callable[[Any], threading.Thread], fn: Any) -> Any:
    loop, future = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
    seen: list[Any] = []

    def tell() -> None:
        loop.call_soon_threadsafe(future.set_result, seen[0])

    make(lambda: (seen.append(fn()), tell())).start()
    return await future


CARRIED = {
    "`await`": awaited,
    "`gather`": gathered,
    "`create_task`": in_a_task,
    "`TaskGroup`": in_a_group,
    "`wait_for`": limited,
    "`shield`": shielded,
    "`call_soon`": called_soon,
    "`call_later`": called_later,
    "`add_done_callback`": done_callback,
    "`asyncio.to_thread`": to_thread,
    "`anyio.to_thread`": anyio_to_thread,
    "`anyio.from_thread`": anyio_from_thread,
    "`run_coroutine_threadsafe`": threadsafe,
    "`asyncio.run`": own_loop,
}
LOST = {
    "`ThreadPoolExecutor.submit`": in_a_pool,
    "`ThreadPoolExecutor.map`": mapped,
    "`loop.run_in_executor`": run_in_executor,
    "`threading.Thread`": bare_thread,
    "`threading.Timer`": timer,
    "`call_soon_threadsafe` from a thread": called_soon_threadsafe,
}


@pytest.mark.parametrize("name", CARRIED)
@pytest.mark.anyio
async def test_what_python_carries_is_in_the_session(name: str) -> None:
    with tenuto.run("outer"), tenuto.run() as run, run.agent("a") as agent:
        assert await CARRIED[name](here) == agent.session_id
    assert here() is None


@pytest.mark.parametrize("name", LOST)
@pytest.mark.anyio
async def test_what_python_loses_is_in_no_session_and_is_carried_by_the_helper(name: str) -> None:
    with tenuto.run("outer"), tenuto.run() as run:
        assert await LOST[name](here) is None
        assert await LOST[name](tenuto.propagate(here)) == run.session_id
    assert here() is None


def test_the_page_names_every_boundary_that_is_tested_and_no_other() -> None:
    text = PAGE.read_text("utf-8")
    rows = dict(re.findall(r"^\| (.+?) \| (carried|lost) \|", text, re.MULTILINE))
    assert {name: "carried" for name in CARRIED} | {name: "lost" for name in LOST} == rows


@pytest.mark.anyio
async def test_a_worker_is_in_the_scope_that_it_was_started_in_while_that_is_open() -> None:
    async def work() -> None:
        while True:
            job, answer = await jobs.get()
            answer.set_result(job())

    async def done(job: Callable[[], Any]) -> Any:
        answer = asyncio.get_running_loop().create_future()
        await jobs.put((job, answer))
        return await answer

    jobs: asyncio.Queue[Any] = asyncio.Queue()
    with tenuto.run() as first:
        worker = asyncio.create_task(work())
        with tenuto.run() as second:
            assert await done(here) == first.session_id
            assert await done(tenuto.propagate(here)) == second.session_id
            assert await done(lambda: enter(second)) == second.session_id
    with tenuto.run():
        assert await done(here) is None
    worker.cancel()


def enter(scope: tenuto.Run) -> str | None:
    with scope:
        return here()


def test_a_runner_keeps_the_context_of_its_first_run() -> None:
    with asyncio.Runner() as runner:
        with tenuto.run():
            runner.run(ahere())
        with tenuto.run() as second:
            assert runner.run(ahere()) is None
            assert runner.run(ahere(), context=copy_context()) == second.session_id
