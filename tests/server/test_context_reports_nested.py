"""Public reports of identity split or mixed by nested streams, each as a test of its kind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import tenuto
from tests.asking import aask, aclient, ask, client, runs, sessions
from tests.loopback import Recorder, serving


def plain(generator: Any) -> Any:
    return generator


WAYS = pytest.mark.parametrize("way", [plain, tenuto.ctxgen])


@WAYS
@pytest.mark.anyio
async def test_nested_streams_down_to_a_sync_call_are_one_run(way: Callable[..., Any]) -> None:
    """https://github.com/mlflow/mlflow/issues/13555

    An async generator pulls another that calls a model synchronously, and each made a trace of
    its own: the inner body ran where the outer one's span had been taken off again.
    """

    async def outer() -> AsyncIterator[str]:
        async with run.agent("outer"):
            await aask(llm, "outer before")
            async for item in way(middle()):
                await aask(llm, f"outer at {item}")
                yield item

    async def middle() -> AsyncIterator[str]:
        async with run.agent("middle"):
            for item in way(inner()):
                await aask(llm, f"middle at {item}")
                yield item

    def inner() -> Iterator[str]:
        with run.agent("inner"):
            yield ask(sync_llm, "inner 0")
            yield ask(sync_llm, "inner 1")

    recorder = Recorder()
    with serving(recorder) as url, client(url) as sync_llm:
        async with aclient(url) as llm:
            run = tenuto.run()
            with run.agent("outer") as outer_agent, run.agent("middle") as middle_agent:
                inner_agent = run.agent("inner")
            async for item in way(outer()):
                await aask(llm, f"consumer at {item}")
    expected = {"outer": outer_agent, "middle": middle_agent, "inner": inner_agent}
    for words, session in sessions(recorder).items():
        agent = expected.get(words.split()[0])
        assert session == (agent.session_id if agent else None), words
    assert set(runs(recorder).values()) == {run.run_id, None}


@WAYS
@pytest.mark.anyio
async def test_what_a_stream_calls_between_its_items_is_its_session(
    way: Callable[..., Any],
) -> None:
    """https://github.com/langchain-ai/langsmith-sdk/issues/607

    A traced async generator calls three children between its yields, and they got runs of their
    own: its context is that of whoever pulls.
    """

    async def stream() -> AsyncIterator[int]:
        async with tenuto.run("streamed"):
            for item in range(3):
                await aask(llm, f"child {item}")
                await asyncio.gather(*(aask(llm, f"gathered {item} {i}") for i in range(3)))
                await asyncio.to_thread(ask, sync_llm, f"thread {item}")
                async with asyncio.TaskGroup() as group:
                    group.create_task(aask(llm, f"grouped {item}"))
                yield item

    recorder = Recorder()
    with serving(recorder) as url, client(url) as sync_llm:
        async with aclient(url) as llm:
            async for item in way(stream()):
                await aask(llm, f"consumer {item}")
    for words, session in sessions(recorder).items():
        own = None if words.startswith("consumer") else tenuto.run("streamed").session_id
        assert session == own, words


@WAYS
@pytest.mark.parametrize("scoped", [False, True])
@pytest.mark.anyio
async def test_streams_and_a_consumer_that_take_turns_in_one_task_never_mix(
    way: Callable[..., Any], scoped: bool
) -> None:
    """https://github.com/langfuse/langfuse/issues/16177

    Two streams are pulled in turn by one task, and their consumer opens scopes of its own
    between the items. What one of them has set is there when the next one goes on.
    """

    async def stream(run: tenuto.Run, name: str) -> AsyncIterator[str]:
        async with run:
            for item in range(3):
                yield await aask(llm, f"{name} {item}")

    recorder = Recorder()
    with serving(recorder) as url:
        async with aclient(url) as llm:
            made = {name: tenuto.run() for name in ("left", "right", "consumer")}
            both = [way(stream(made[name], name)) for name in ("left", "right")]
            for item in range(3):
                for items in both:
                    with made["consumer"] if scoped else contextlib.nullcontext():
                        await anext(items)
                        await aask(llm, f"consumer {item} {id(items)}")
            for items in reversed(both):
                await items.aclose()
            await aask(llm, "outside")
    for words, session in sessions(recorder).items():
        run = made.get(words.split()[0])
        marked = run is not None and (scoped or not words.startswith("consumer"))
        assert session == (run.session_id if run and marked else None), words


@pytest.mark.parametrize("nested", [False, True], ids=["in the run", "in an agent of it"])
def test_a_run_without_a_name_ends_no_sooner_than_a_stream_that_was_made_in_it(
    nested: bool,
) -> None:
    def stream() -> Iterator[str]:
        yield ask(llm, "first")
        yield ask(llm, "second")

    def dropped(words: str) -> str | None:
        with tenuto.run(f"another, nested {nested}"):
            ask(llm, words)
        return recorder.arrived[-1].turn.get("drop")

    answered = {"X-Agent-Affinity": "abcd1234.1", "X-Agent-Served": "rank=1, home=1, why=home"}
    recorder = Recorder(answer_headers=answered)
    with serving(recorder) as url, client(url) as llm:
        with tenuto.run() as run, run.agent("a") if nested else contextlib.nullcontext() as agent:
            made = tenuto.ctxgen(stream())
            next(made)
        assert dropped("between") is None
        next(made)
        made.close()
        assert dropped("after") == f'"{(agent or run).session_id}"'
