"""Public reports of identity lost or kept too long by tasks, each as a test of its kind."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any

import pytest

import tenuto
from tests.asking import aask, aclient, runs
from tests.loopback import Recorder, serving


@pytest.mark.anyio
async def test_what_waits_races_or_is_shielded_keeps_the_session_it_was_started_in() -> None:
    """https://github.com/openai/openai-agents-python/issues/634

    Time limits, shields, races and callbacks each run in a copy of the context, or in the
    caller's own, by the version of Python.
    """

    async def scoped(name: str) -> None:
        async with tenuto.run(name):
            await aask(llm, name)

    recorder = Recorder()
    with serving(recorder) as url:
        async with aclient(url) as llm, tenuto.run("outer") as outer:
            await asyncio.wait_for(scoped("limited"), 5)
            await aask(llm, "after limited")
            await asyncio.shield(scoped("shielded"))
            await aask(llm, "after shielded")
            async with asyncio.timeout(5):
                await scoped("timed")
            await asyncio.wait([asyncio.create_task(scoped(f"raced {i}")) for i in range(2)])
            for done in asyncio.as_completed([scoped("completed")]):
                await done
            tasks: list[asyncio.Task[Any]] = []
            loop = asyncio.get_running_loop()
            loop.call_soon(lambda: tasks.append(loop.create_task(aask(llm, "called soon"))))
            await asyncio.sleep(0)
            await tasks[0]
            if sys.version_info >= (3, 12):
                eager = asyncio.eager_task_factory(loop, scoped("eager"))
                await aask(llm, "beside eager")
                await eager
            shielded = asyncio.shield(aask(llm, "shielded in outer"))
            shielded.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await shielded
            await aask(llm, "last")
    own = ("limited", "shielded", "timed", "raced 0", "raced 1", "completed", "eager")
    for words, run in runs(recorder).items():
        assert run == (tenuto.run(words) if words in own else outer).run_id, words


@pytest.mark.anyio
async def test_what_outlives_its_scope_is_unmarked_whoever_is_running_then() -> None:
    """https://github.com/temporalio/sdk-python/issues/1852

    A finished span stays current in tasks, timers and done-callbacks that hold a copy of its
    context, while another run goes on.
    """

    async def outlives(words: str) -> None:
        await other_began.wait()
        await aask(llm, words)

    def ring() -> None:
        tasks.append(loop.create_task(aask(llm, "timer")))
        rang.set()

    recorder = Recorder()
    loop = asyncio.get_running_loop()
    other_began, called, rang = asyncio.Event(), loop.create_future(), asyncio.Event()
    tasks: list[asyncio.Task[Any]] = []
    with serving(recorder) as url:
        async with aclient(url) as llm:
            with tenuto.run("first"):
                tasks.append(loop.create_task(outlives("task")))
                tasks.append(loop.create_task(asyncio.wait_for(outlives("limited"), 5)))
                called.add_done_callback(
                    lambda _: tasks.append(loop.create_task(aask(llm, "callback")))
                )
                loop.call_later(0.01, ring)
            with tenuto.run("second") as second:
                other_began.set()
                called.set_result(None)
                await rang.wait()
                await asyncio.gather(*tasks)
                await aask(llm, "second")
    assert runs(recorder) == {
        **dict.fromkeys(("task", "limited", "callback", "timer")),
        "second": second.run_id,
    }
