"""Public reports of identity lost or leaked by generators, each as a test of its kind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import tenuto
from tests.asking import aask, aclient, ask, client, sessions
from tests.loopback import Recorder, serving


def plain(generator: Any) -> Any:
    return generator


WAYS = pytest.mark.parametrize("way", [plain, tenuto.ctxgen])


@WAYS
def test_a_dropped_generator_leaves_its_consumer_where_it_was(
    way: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """https://github.com/open-telemetry/opentelemetry-python/issues/2606

    A stream that holds a span is dropped after its first item, and the span is detached when and
    where the collector finds it: an error is logged and the consumer's span is lost.
    """

    def stream(run: tenuto.Run) -> Iterator[str]:
        with run.agent("streamer"):
            try:
                yield ask(llm, "first item")
                yield ask(llm, "second item")
            finally:
                ask(llm, "cleaning up")

    recorder = Recorder()
    with serving(recorder) as url, client(url) as llm:
        theirs, own = tenuto.run(), tenuto.run()
        with own:
            items = way(stream(theirs))
            next(items)
            ask(llm, "between")
            del items
            gc.collect()
            ask(llm, "after")
        ask(llm, "outside")
    streamer = theirs.agent("streamer").session_id
    assert sessions(recorder) == {
        "first item": streamer,
        "cleaning up": streamer,
        "between": own.session_id,
        "after": own.session_id,
        "outside": None,
    }
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@WAYS
@pytest.mark.anyio
async def test_a_stream_closed_by_another_task_neither_raises_nor_logs(
    way: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """https://github.com/langfuse/langfuse/issues/13590

    A span that an async generator holds is detached by the task that closes it, which never
    attached it: `ValueError`, or an ERROR in the log, on each broken-off stream.
    """

    async def stream() -> AsyncIterator[str]:
        async with tenuto.run("streamed"):
            yield await aask(llm, "item")
            yield "never"

    recorder = Recorder()
    with serving(recorder) as url:
        async with aclient(url) as llm:
            items = way(stream())
            await anext(items)
            await aask(llm, "before closing")
            await asyncio.create_task(items.aclose())
            await aask(llm, "after closing")
    assert sessions(recorder) == {
        "item": tenuto.run("streamed").session_id,
        "before closing": None,
        "after closing": None,
    }
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def by_break(items: Any, after: Callable[[], Any]) -> None:
    async for _ in items:
        break
    await after()


async def by_return(items: Any, after: Callable[[], Any]) -> None:
    async def first() -> Any:
        async for item in items:
            return item
        return None

    await first()
    await after()


async def by_error(items: Any, after: Callable[[], Any]) -> None:
    with contextlib.suppress(ZeroDivisionError):
        async for _ in items:
            _ = 1 // 0
    await after()


async def by_cancellation(items: Any, after: Callable[[], Any]) -> None:
    async def consume() -> None:
        async for _ in items:
            reached.set()

    reached = asyncio.Event()
    task = asyncio.create_task(consume())
    await reached.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await after()


async def by_a_time_limit(items: Any, after: Callable[[], Any]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.05):
            async for _ in items:
                await asyncio.sleep(0.03)
    await after()


@WAYS
@pytest.mark.parametrize("leave", [by_break, by_return, by_error, by_cancellation, by_a_time_limit])
@pytest.mark.anyio
async def test_no_way_out_of_a_stream_leaks_its_session(
    way: Callable[..., Any], leave: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """https://github.com/Arize-ai/openinference/issues/3078
    https://github.com/google/adk-python/issues/4894

    A span that is current around a `yield` stays its consumer's when the loop is left early,
    until the generator is collected somewhere else. Calls made right after are not the stream's.
    """

    async def stream(run: tenuto.Run) -> AsyncIterator[str]:
        async with run:
            for item in range(3):
                yield await aask(llm, f"item {item}")
                await asyncio.sleep(0)

    async def after() -> None:
        await aask(llm, "at once")
        gc.collect()
        await asyncio.sleep(0)
        await aask(llm, "later")

    recorder = Recorder()
    with serving(recorder) as url:
        async with aclient(url) as llm:
            theirs, own = tenuto.run(), tenuto.run()
            with own:
                await leave(way(stream(theirs)), after)
            await aask(llm, "outside")
    said = sessions(recorder)
    assert (said.pop("at once"), said.pop("later")) == (own.session_id,) * 2
    assert said.pop("outside") is None
    assert set(said.values()) == {theirs.session_id}
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@WAYS
@pytest.mark.anyio
async def test_runs_that_end_at_their_first_final_event_are_siblings(
    way: Callable[..., Any],
) -> None:
    """https://github.com/google/adk-python/issues/6559

    A caller stops at the first final event, and the next run starts below the one before,
    since its scope is still there.
    """

    async def events(run: tenuto.Run) -> AsyncIterator[str]:
        async with run, run.agent("root") as root:
            yield await aask(llm, root.session_id)
            yield "final"
            await aask(llm, "never")

    recorder = Recorder()
    with serving(recorder) as url:
        async with aclient(url) as llm:
            made = [tenuto.run() for _ in range(3)]
            for run in made:
                async for event in way(events(run)):
                    if event == "final":
                        break
    assert [one.headers["x-agent-run-id"] for one in recorder.arrived] == [r.run_id for r in made]
    for run, one in zip(made, recorder.arrived, strict=True):
        assert one.headers["x-session-id"] == one.body["messages"][-1]["content"]
        assert one.headers["x-parent-session-id"] == run.session_id
