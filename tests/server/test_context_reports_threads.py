"""Public reports of identity lost in threads and executors, each as a test of its kind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from typing import Any

import pytest

import tenuto
from tests.asking import aask, aclient, ask, client, runs, sessions
from tests.loopback import Recorder, serving


@pytest.mark.parametrize("kind", ["thread", "timer"])
def test_work_in_a_bare_thread_is_in_its_session_with_the_helper_and_in_none_without(
    kind: str,
) -> None:
    """https://github.com/crewAIInc/crewAI/issues/4822

    A task that runs asynchronously is started with a bare `Thread`, whose context is empty, so
    that its calls lose the crew they belong to.
    """

    def started(target: Callable[[], Any]) -> threading.Thread:
        made = threading.Thread(target=target) if kind == "thread" else threading.Timer(0, target)
        made.start()
        return made

    recorder = Recorder()
    with serving(recorder) as url, client(url) as llm:
        with tenuto.run("crew") as run, run.agent("worker") as worker:
            carried = started(tenuto.propagate(lambda: ask(llm, "carried")))
            bare = started(lambda: ask(llm, "bare"))
            with tenuto.run("another"):
                carried.join()
                bare.join()
    assert sessions(recorder) == {"carried": worker.session_id, "bare": None}


def test_parallel_tool_calls_in_a_pool_are_children_of_the_step_that_made_them() -> None:
    """https://github.com/crewAIInc/crewAI/pull/4708
    https://github.com/huggingface/smolagents/pull/1840

    A step runs its tool calls in a `ThreadPoolExecutor`, whose threads know of no step; their
    spans became roots, and ids set in the step's context were missing in the tools.
    """

    def tool(step: int, call: int) -> None:
        with run.agent("tool", instance=f"{step}-{call}"):
            ask(llm, f"tool {step} {call}")

    recorder = Recorder()
    with serving(recorder) as url, client(url) as llm, tenuto.ContextExecutor(4) as pool:
        steps = {}
        with tenuto.run() as run:
            for step in range(2):
                with run.agent("step", instance=step) as agent:
                    steps[step] = agent.session_id
                    calls = [pool.submit(tool, step, call) for call in range(4)]
                    for call in as_completed(calls):
                        call.result()
                    list(pool.map(lambda words: ask(llm, words), [f"mapped {step}"]))
    for one in recorder.arrived:
        kind, step, *_ = one.body["messages"][-1]["content"].split()
        key = "x-parent-session-id" if kind == "tool" else "x-session-id"
        assert one.headers[key] == steps[int(step)]
    assert len(set(sessions(recorder).values())) == 10


@pytest.mark.parametrize("default", [False, True])
@pytest.mark.anyio
async def test_a_sync_component_that_is_off_loaded_stays_in_its_pipelines_run(
    default: bool,
) -> None:
    """https://github.com/deepset-ai/haystack/issues/9203
    https://github.com/microsoft/autogen/pull/4640

    `loop.run_in_executor` takes no context along, so sync components of an async pipeline and
    sync replies of an async agent called from nowhere.
    """

    async def pipeline(name: str) -> None:
        with tenuto.run(name):
            await aask(llm, f"{name} async")
            await loop.run_in_executor(pool, ask, sync_llm, f"{name} sync")

    recorder = Recorder()
    loop = asyncio.get_running_loop()
    names = [f"pipeline-{i}" for i in range(8)]
    with serving(recorder) as url, client(url) as sync_llm, tenuto.ContextExecutor(4) as executor:
        pool: Executor | None = executor
        if default:
            loop.set_default_executor(executor)
            pool = None
        async with aclient(url) as llm:
            await asyncio.gather(*(pipeline(name) for name in names))
    assert runs(recorder) == {
        f"{name} {kind}": tenuto.run(name).run_id for name in names for kind in ("async", "sync")
    }


@pytest.mark.anyio
async def test_a_sync_tool_that_a_framework_moves_to_a_thread_is_in_its_agents_session() -> None:
    """https://github.com/pydantic/pydantic-ai/pull/1576
    https://github.com/openai/openai-agents-python/pull/2387

    Sync tools are off-loaded so that they do not block the loop. Their calls belong to the agent
    that called the tool, with `asyncio.to_thread` by itself.
    """

    async def agent(name: str) -> None:
        async with run.agent(name):
            await asyncio.gather(
                asyncio.to_thread(ask, sync_llm, f"{name} tool 0"),
                asyncio.to_thread(ask, sync_llm, f"{name} tool 1"),
                aask(llm, f"{name} own"),
            )

    recorder = Recorder()
    with serving(recorder) as url, client(url) as sync_llm:
        async with aclient(url) as llm, tenuto.run() as run:
            await asyncio.gather(agent("planner"), agent("writer"))
    for words, session in sessions(recorder).items():
        assert session == run.agent(words.split()[0]).session_id


@pytest.mark.anyio
async def test_work_handed_from_thread_to_loop_and_back_keeps_its_session() -> None:
    """https://github.com/huggingface/smolagents/issues/2187

    A tool in a thread calls back into the event loop and from there into another thread; each
    step is a boundary that a context may be lost at.
    """

    def in_thread() -> None:
        ask(sync_llm, "thread")
        asyncio.run_coroutine_threadsafe(in_loop(), loop).result()

    async def in_loop() -> None:
        await aask(llm, "loop")
        await asyncio.to_thread(ask, sync_llm, "thread again")

    recorder = Recorder()
    loop = asyncio.get_running_loop()
    with serving(recorder) as url, client(url) as sync_llm, tenuto.ContextExecutor() as pool:
        async with aclient(url) as llm:
            with tenuto.run() as run, run.agent("caller") as caller:
                work = loop.run_in_executor(pool, in_thread)
                with tenuto.run():
                    await work
    assert set(sessions(recorder).values()) == {caller.session_id}


def test_sixty_four_threads_with_one_client_never_mix() -> None:
    """https://github.com/deepset-ai/haystack-core-integrations/pull/2188

    A stack of spans on an instance that threads share gives one thread's span to another.
    """

    def work(index: int) -> None:
        with tenuto.run(f"run-{index}") as run:
            for turn in range(4):
                met.wait()
                with run.agent("a", instance=turn % 2):
                    ask(llm, f"{index} {turn}")

    recorder = Recorder()
    met = threading.Barrier(64)
    with serving(recorder) as url, client(url) as llm, ThreadPoolExecutor(64) as pool:
        list(pool.map(work, range(64)))
    said = sessions(recorder)
    assert len(said) == 256
    for words, session in said.items():
        index, turn = words.split()
        agent = tenuto.run(f"run-{index}").agent("a", instance=int(turn) % 2)
        assert session == agent.session_id
