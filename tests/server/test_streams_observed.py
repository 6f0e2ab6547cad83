"""A stream that is observed yields what it would, and tells of each item and of its end once."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest

from tenuto.streams import observe
from tests.calls import HTTP, make
from tests.loopback import eventually
from tests.retry_calls import USER
from tests.scripted import CUT, DONE, STALL, Answer, Scripted, chat_chunks, scripted, streamed

CHUNKS = chat_chunks("a", "b", "c")


class Told:
    """What an observer was told; `fails` has it raise each time."""

    def __init__(self, fails: bool = False) -> None:
        self.items: list[Any] = []
        self.ends: list[tuple[bool, bool]] = []
        self._fails = fails

    def item(self, item: Any) -> None:
        self.items.append(item)
        if self._fails:
            raise RuntimeError("of the observer")

    def end(self, finished: bool, saw_done: bool) -> None:
        self.ends.append((finished, saw_done))
        if self._fails:
            raise RuntimeError("of the observer")

    @property
    def texts(self) -> list[str]:
        return [item.choices[0].delta.content for item in self.items]


@contextlib.contextmanager
def observed(
    answer: Answer, told: Told, http: str = "httpx"
) -> Iterator[tuple[openai.Stream[Any], Scripted]]:
    with scripted(answer) as (script, url), make(openai.OpenAI, url, http) as client:
        stream = client.chat.completions.create(model="m", messages=USER, stream=True)
        observe(stream, told.item, told.end)
        yield stream, script


@contextlib.asynccontextmanager
async def aobserved(
    answer: Answer, told: Told, http: str = "httpx"
) -> AsyncIterator[tuple[openai.AsyncStream[Any], Scripted]]:
    with scripted(answer) as (script, url):
        async with make(openai.AsyncOpenAI, url, http) as client:
            stream = await client.chat.completions.create(model="m", messages=USER, stream=True)
            observe(stream, told.item, told.end)
            yield stream, script


# What the server sends, and what is told of the end.
ENDS: dict[str, tuple[Answer, tuple[bool, bool]]] = {
    "[DONE]": (streamed(*CHUNKS, DONE), (True, True)),
    "end of the body": (streamed(*CHUNKS), (True, False)),
    "disconnect": (streamed(*CHUNKS, end=CUT), (False, False)),
    "error event": (streamed(*CHUNKS, {"error": {"message": "x"}}), (False, False)),
    "nothing": (streamed(), (True, False)),
    "[DONE] alone": (streamed(DONE), (True, True)),
}


def raising(name: str) -> contextlib.AbstractContextManager[Any]:
    if name in ("disconnect", "error event"):
        # openai 2 lets the errors of its HTTP library through.
        lost = [library.RemoteProtocolError for library in HTTP.values()]
        return pytest.raises((openai.APIError, *lost))
    return contextlib.nullcontext()


@pytest.mark.parametrize("fails", [False, True], ids=["", "failing"])
@pytest.mark.parametrize("http", HTTP)
@pytest.mark.parametrize("name", ENDS)
def test_a_stream_tells_of_its_items_and_its_end(name: str, http: str, fails: bool) -> None:
    answer, end = ENDS[name]
    told, got = Told(fails), list[Any]()
    with observed(answer, told, http) as (stream, _):
        with raising(name):
            for item in stream:
                assert told.items[-1] is item
                got.append(item)
        assert told.ends == [end]
        assert "close" not in stream.response.__dict__
        stream.close()
    gc.collect()
    assert told.ends == [end]
    assert told.items == got


@pytest.mark.parametrize("fails", [False, True], ids=["", "failing"])
@pytest.mark.parametrize("http", HTTP)
@pytest.mark.parametrize("name", ENDS)
@pytest.mark.anyio
async def test_an_async_stream_tells_of_its_items_and_its_end(
    name: str, http: str, fails: bool
) -> None:
    answer, end = ENDS[name]
    told, got = Told(fails), list[Any]()
    async with aobserved(answer, told, http) as (stream, _):
        with raising(name):
            async for item in stream:
                assert told.items[-1] is item
                got.append(item)
        assert told.ends == [end]
        assert "aclose" not in stream.response.__dict__
        await stream.close()
    gc.collect()
    assert told.ends == [end]
    assert told.items == got


OPEN = streamed(*CHUNKS[:2], end=STALL)


def test_a_stream_that_is_closed_early_tells_so_at_once_and_tells_no_more() -> None:
    told = Told()
    with observed(OPEN, told) as (stream, script):
        next(stream)
        stream.close()
        assert (told.texts, told.ends) == (["a"], [(False, False)])
        assert eventually(lambda: script.left == 1)
    gc.collect()
    assert len(told.ends) == 1


def test_a_stream_that_is_closed_unread_tells_so() -> None:
    told = Told()
    with observed(OPEN, told) as (stream, _):
        stream.close()
    assert (told.items, told.ends) == ([], [(False, False)])


def test_a_stream_whose_helper_is_closed_tells_so() -> None:
    told = Told()
    with observed(OPEN, told) as (stream, _):
        stream.response.close()
    assert told.ends == [(False, False)]


def open_and_forget(client: Any, told: Told, reads: int) -> None:
    stream = client.chat.completions.create(model="m", messages=USER, stream=True)
    observe(stream, told.item, told.end)
    for _ in range(reads):
        next(stream)


@pytest.mark.parametrize("reads", [0, 1])
def test_a_stream_that_is_forgotten_tells_so_when_it_is_collected(reads: int) -> None:
    told = Told()
    with scripted(OPEN) as (_, url), make(openai.OpenAI, url) as client:
        open_and_forget(client, told, reads)
        gc.collect()
        assert (len(told.items), told.ends) == (reads, [(False, False)])


async def aopen_and_forget(client: Any, told: Told, reads: int) -> None:
    stream = await client.chat.completions.create(model="m", messages=USER, stream=True)
    observe(stream, told.item, told.end)
    for _ in range(reads):
        await anext(stream)


@pytest.mark.parametrize("reads", [0, 1])
@pytest.mark.anyio
async def test_an_async_stream_that_is_forgotten_tells_so_when_it_is_collected(reads: int) -> None:
    told = Told()
    with scripted(OPEN) as (_, url):
        async with make(openai.AsyncOpenAI, url) as client:
            await aopen_and_forget(client, told, reads)
            for _ in range(20):
                # Each collected generator is closed by a task, which lets go of the next.
                gc.collect()
                await asyncio.sleep(0)
            assert (len(told.items), told.ends) == (reads, [(False, False)])


def test_what_is_read_after_a_close_is_not_told() -> None:
    told = Told()
    body = b"".join(b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in CHUNKS)
    head = b"HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
    with observed([head % len(body) + body], told) as (stream, _):
        next(stream)
        stream.close()
        assert next(stream).choices[0].delta.content == "b"
        assert (told.texts, told.ends) == (["a"], [(False, False)])


@pytest.mark.anyio
async def test_an_async_stream_that_is_closed_early_tells_so_at_once() -> None:
    told = Told()
    async with aobserved(OPEN, told) as (stream, script):
        await anext(stream)
        await stream.close()
        assert (told.texts, told.ends) == (["a"], [(False, False)])
        assert await asyncio.to_thread(eventually, lambda: script.left == 1)


@pytest.mark.anyio
async def test_an_async_stream_that_is_cancelled_tells_so() -> None:
    told = Told()
    async with aobserved(OPEN, told) as (stream, _):
        task = asyncio.ensure_future(read_all(stream))
        assert await asyncio.to_thread(eventually, lambda: len(told.items) == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert told.ends == [(False, False)]


async def read_all(stream: openai.AsyncStream[Any]) -> list[Any]:
    return [item async for item in stream]


def test_two_observers_of_one_stream_are_told_the_same() -> None:
    first, second = Told(), Told()
    with observed(streamed(*CHUNKS, DONE), first) as (stream, _):
        observe(stream, second.item, second.end)
        got = list(stream)
        assert stream.response.__dict__.keys().isdisjoint({"close", "aclose"})
    assert first.items == second.items == got
    assert first.ends == second.ends == [(True, True)]


def test_two_observers_of_a_stream_that_is_closed_are_told_both() -> None:
    first, second = Told(), Told()
    with observed(OPEN, first) as (stream, _):
        observe(stream, second.item, second.end)
        next(stream)
        stream.close()
        assert first.ends == second.ends == [(False, False)]


def test_a_stream_that_has_ended_is_freed_without_the_collector() -> None:
    told = Told()
    freed = weakref.ref(told)
    gc.disable()
    try:
        with observed(streamed(*CHUNKS, DONE), told) as (stream, _):
            list(stream)
            del stream, told
        assert freed() is None
    finally:
        gc.enable()
