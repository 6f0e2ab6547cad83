"""A stream is tried again until its first item, and says so when it breaks off after it.

https://github.com/openai/openai-python/issues/2356 and
https://github.com/openai/openai-python/issues/2065: a connection that closed in the midst of a
stream raised the HTTP library's own error, past whoever caught openai's; openai 2 reads the
body outside of what translates errors. https://github.com/pydantic/pydantic-ai/issues/6610: a
stream that ended without a finish reason or `[DONE]` passed for a whole answer, since openai's
client takes the end of the body for the end of the answer.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import openai
import pytest

import tenuto
from tenuto.errors import StreamInterrupted
from tenuto.retry import retrying
from tests.calls import HTTP, make
from tests.loopback import eventually
from tests.retry_calls import ASKS, USER, no_wait
from tests.scripted import (
    CUT,
    DONE,
    RESET,
    STALL,
    Answer,
    Scripted,
    chat_chunks,
    failure,
    response_events,
    scripted,
    streamed,
)

Ask = Callable[..., Any]
WHOLE = streamed(*chat_chunks("a", "b"), DONE)
STREAM = {"stream": True}


@pytest.fixture(params=ASKS)
def ask(request: pytest.FixtureRequest) -> Ask:
    return ASKS[request.param]


def error_event(**error: Any) -> dict[str, Any]:
    return {"error": {"message": "scripted", **error}}


# What fails before the first item, how often it is tried, and what is raised in the end.
BEFORE_THE_FIRST: dict[str, tuple[Answer, int, type[Exception]]] = {
    "500": (failure(500), 3, openai.InternalServerError),
    "disconnect": (streamed(end=CUT), 3, openai.APIConnectionError),
    "reset": (streamed(end=RESET), 3, openai.APIConnectionError),
    "torn chunk": (streamed(torn=True), 3, openai.APIConnectionError),
    "stall": (streamed(end=STALL), 3, openai.APITimeoutError),
    "end": (streamed(), 3, StreamInterrupted),
    "server_error": (streamed(error_event(code="server_error")), 3, openai.APIError),
    "overloaded": (streamed(error_event(code="overloaded")), 3, openai.APIError),
    "rate_limit_exceeded": (streamed(error_event(code="rate_limit_exceeded")), 3, openai.APIError),
    "number": (streamed(error_event(code=500)), 3, openai.APIError),
    "invalid_prompt": (streamed(error_event(code="invalid_prompt")), 1, openai.APIError),
    "quota": (streamed(error_event(code="insufficient_quota")), 1, openai.APIError),
    "bad JSON": (streamed("{nonsense"), 1, json.JSONDecodeError),
}


@pytest.mark.parametrize("name", BEFORE_THE_FIRST)
def test_what_fails_before_the_first_item_is_tried_again(name: str, ask: Ask) -> None:
    answer, requests, kind = BEFORE_THE_FIRST[name]
    with scripted(*[answer] * 4) as (script, url), tenuto.run(), pytest.raises(kind) as raised:
        ask(url, {**STREAM, "timeout": 0.5})
    assert isinstance(raised.value, openai.OpenAIError | json.JSONDecodeError)
    assert [one.turn["attempt"] for one in script.arrived] == [str(i) for i in range(requests)]


def test_after_failures_of_every_kind_the_stream_that_works_is_given_whole(ask: Ask) -> None:
    failures = [streamed(end=CUT), streamed(error_event(code="server_error")), failure(503)]
    with scripted(*failures, WHOLE) as (_, url):
        items = ask(url, STREAM, attempts=4)
    assert [item.choices[0].delta.content for item in items] == ["a", "b"]


def test_an_error_event_that_may_not_pass_is_raised_as_openai_raises_it(ask: Ask) -> None:
    answers = [failure(500), streamed(error_event(code="invalid_prompt"))]
    with scripted(*answers) as (script, url), pytest.raises(openai.APIError) as raised:
        ask(url, STREAM)
    assert (type(raised.value), raised.value.code) == (openai.APIError, "invalid_prompt")
    assert len(script.arrived) == 2


def test_a_deadline_bounds_the_wait_for_the_first_item(ask: Ask) -> None:
    with scripted(*[streamed(end=STALL)] * 3) as (script, url):
        with pytest.raises(openai.APITimeoutError):
            ask(url, STREAM, deadline_s=0.3)
    assert len(script.arrived) == 1


TWO = chat_chunks("a", "b", finish=None)
# What follows two items, and the cause of what is raised.
AFTER_THE_FIRST: dict[str, tuple[Answer, type[Exception] | None]] = {
    "disconnect": (streamed(*TWO, end=CUT), openai.APIConnectionError),
    "reset": (streamed(*TWO, end=RESET), openai.APIConnectionError),
    "torn chunk": (streamed(*TWO, torn=True), openai.APIConnectionError),
    "stall": (streamed(*TWO, end=STALL), openai.APITimeoutError),
    "error event": (streamed(*TWO, error_event(code="server_error")), openai.APIError),
    "bad JSON": (streamed(*TWO, "{nonsense"), json.JSONDecodeError),
    "end": (streamed(*TWO), None),
}


def named(answer: Answer) -> Answer:
    """Return an answer with a request id."""
    head = answer[0]
    assert isinstance(head, bytes)
    return [head.replace(b"\r\n\r\n", b"\r\nx-request-id: req-1\r\n\r\n"), *answer[1:]]


def check_interrupted(error: StreamInterrupted, cause: type[Exception] | None) -> None:
    assert [item.choices[0].delta.content for item in error.partial] == ["a", "b"]
    assert (error.text, error.request_id) == ("ab", "req-1")
    assert type(error.__cause__) is (cause or type(None))
    assert "req-1" not in str(error)


@pytest.mark.parametrize("name", AFTER_THE_FIRST)
@pytest.mark.parametrize("http", HTTP)
def test_what_breaks_off_after_the_first_item_is_told_with_what_arrived(
    http: str, name: str
) -> None:
    answer, cause = AFTER_THE_FIRST[name]
    with scripted(named(answer), WHOLE) as (script, url), make(openai.OpenAI, url, http) as plain:
        stream = ask_for_stream(retrying(plain, wait=no_wait, deadline_s=30), 0.3)
        assert type(stream) is openai.Stream
        with pytest.raises(StreamInterrupted) as raised:
            list(stream)
        assert stream.response.is_closed
        assert list(stream) == []
    check_interrupted(raised.value, cause)
    assert len(script.arrived) == 1


@pytest.mark.parametrize("name", AFTER_THE_FIRST)
@pytest.mark.parametrize("http", HTTP)
@pytest.mark.anyio
async def test_what_breaks_off_an_async_stream_is_told_with_what_arrived(
    http: str, name: str
) -> None:
    answer, cause = AFTER_THE_FIRST[name]
    with scripted(named(answer), WHOLE) as (script, url):
        async with make(openai.AsyncOpenAI, url, http) as plain:
            stream = await ask_for_stream(retrying(plain, wait=no_wait, deadline_s=30), 0.3)
            assert type(stream) is openai.AsyncStream
            with pytest.raises(StreamInterrupted) as raised:
                [item async for item in stream]
            assert stream.response.is_closed
            assert [item async for item in stream] == []
    check_interrupted(raised.value, cause)
    assert len(script.arrived) == 1


def ask_for_stream(client: Any, timeout_s: float = 10.0) -> Any:
    return client.chat.completions.create(model="m", messages=USER, stream=True, timeout=timeout_s)


# Ends that are none of a broken stream.
WELL_ENDED = {
    "finish and [DONE]": streamed(*chat_chunks("a", "b"), DONE),
    "finish only": streamed(*chat_chunks("a", "b")),
    "[DONE] only": streamed(*TWO, DONE),
}


@pytest.mark.parametrize("name", WELL_ENDED)
def test_a_stream_that_has_either_of_its_two_ends_is_whole(name: str, ask: Ask) -> None:
    with scripted(WELL_ENDED[name]) as (_, url):
        assert len(ask(url, STREAM)) == 2


def test_done_alone_is_an_empty_stream(ask: Ask) -> None:
    with scripted(streamed(DONE)) as (_, url):
        assert ask(url, STREAM) == []


def chat_stream(client: Any) -> Any:
    return client.chat.completions.stream(model="m", messages=USER)


def response_stream(client: Any) -> Any:
    return client.responses.stream(model="m", input="hi")


HELPERS: dict[str, tuple[Callable[[Any], Any], Answer, Answer]] = {
    "chat": (chat_stream, streamed(*TWO), WHOLE),
    "chat, cut": (chat_stream, streamed(*TWO, end=CUT), WHOLE),
    "responses": (
        response_stream,
        streamed(*response_events("a", "b", end=None)),
        streamed(*response_events("a", "b")),
    ),
    "responses, cut": (
        response_stream,
        streamed(*response_events("a", "b", end=None), end=CUT),
        streamed(*response_events("a", "b")),
    ),
}


@pytest.mark.parametrize("name", HELPERS)
def test_the_streaming_helpers_are_tried_again_and_tell_of_a_broken_answer(name: str) -> None:
    helper, broken, whole = HELPERS[name]
    answers = [streamed(end=CUT), whole, streamed(end=CUT), broken]
    with scripted(*answers) as (script, url), make(openai.OpenAI, url) as plain:
        client = retrying(plain, wait=no_wait)
        with helper(client) as stream:
            stream.until_done()
        with helper(client) as stream, pytest.raises(StreamInterrupted) as raised:
            stream.until_done()
    assert raised.value.text == "ab"
    assert len(script.arrived) == 4


@pytest.mark.parametrize("name", HELPERS)
@pytest.mark.anyio
async def test_the_async_helpers_are_tried_again_and_tell_of_a_broken_answer(name: str) -> None:
    helper, broken, whole = HELPERS[name]
    with scripted(streamed(end=CUT), whole, streamed(end=CUT), broken) as (script, url):
        async with make(openai.AsyncOpenAI, url) as plain:
            client = retrying(plain, wait=no_wait)
            async with helper(client) as stream:
                await stream.until_done()
            async with helper(client) as stream:
                with pytest.raises(StreamInterrupted) as raised:
                    await stream.until_done()
    assert raised.value.text == "ab"
    assert len(script.arrived) == 4


@pytest.mark.parametrize("end", ["completed", "failed", "incomplete"])
def test_a_response_has_ended_with_each_of_its_three_ends(end: str) -> None:
    with scripted(streamed(*response_events("a", end=end))) as (_, url):
        with make(openai.OpenAI, url) as plain:
            events = list(retrying(plain).responses.create(model="m", input="hi", stream=True))
    assert events[-1].type == f"response.{end}"


def first_error(code: str) -> Answer:
    return streamed({"type": "error", "code": code, "message": "scripted", "sequence_number": 0})


def test_a_responses_error_event_is_tried_again_when_it_may_pass() -> None:
    answers = [first_error("server_error"), streamed(*response_events("a"))]
    with scripted(*answers) as (script, url), make(openai.OpenAI, url) as plain:
        client = retrying(plain, wait=no_wait)
        events = list(client.responses.create(model="m", input="hi", stream=True))
    assert events[-1].type == "response.completed"
    assert len(script.arrived) == 2


@pytest.mark.anyio
async def test_a_responses_error_event_is_raised_when_no_attempt_is_left() -> None:
    with scripted(*[first_error("server_error")] * 3) as (script, url):
        async with make(openai.AsyncOpenAI, url) as plain:
            client = retrying(plain, wait=no_wait)
            with pytest.raises(openai.APIError) as raised:
                await client.responses.create(model="m", input="hi", stream=True)
    assert (type(raised.value), raised.value.code) == (openai.APIError, "server_error")
    assert len(script.arrived) == 3


def test_a_responses_error_event_that_will_not_pass_is_an_item_as_ever() -> None:
    with scripted(first_error("invalid_prompt")) as (_, url), make(openai.OpenAI, url) as plain:
        events = list(retrying(plain).responses.create(model="m", input="hi", stream=True))
    assert [event.type for event in events] == ["error"]


def test_a_text_completion_is_told_of_in_its_own_chunks() -> None:
    chunk = {"id": "c", "object": "text_completion", "created": 1, "model": "m"}
    chunk["choices"] = [{"index": 0, "text": "a", "finish_reason": None, "logprobs": None}]
    with scripted(streamed(chunk, chunk)) as (_, url), make(openai.OpenAI, url) as plain:
        stream = retrying(plain).completions.create(model="m", prompt="hi", stream=True)
        with pytest.raises(StreamInterrupted) as raised:
            list(stream)
    assert raised.value.text == "aa"


def test_a_raw_response_is_its_callers_from_the_head_on_and_its_stream_tells() -> None:
    with scripted(failure(500), streamed(*TWO)) as (script, url), make(openai.OpenAI, url) as plain:
        raw = retrying(plain, wait=no_wait).chat.completions.with_raw_response
        answer = raw.create(model="m", messages=USER, stream=True)
        assert not answer.http_response.is_stream_consumed
        with pytest.raises(StreamInterrupted) as raised:
            list(answer.parse())
    assert raised.value.text == "ab"
    assert len(script.arrived) == 2


OPEN = streamed(*chat_chunks(*"abc", finish=None), end=STALL)


def read_one_and_close(stream: Any) -> None:
    next(iter(stream))
    stream.close()


def read_one_in_a_with(stream: Any) -> None:
    with stream:
        for _ in stream:
            break


def close_unread(stream: Any) -> None:
    stream.close()


LEAVING = [read_one_and_close, read_one_in_a_with, close_unread]


@pytest.mark.parametrize("leave", LEAVING)
def test_a_stream_that_is_left_early_closes_its_connection(leave: Callable[[Any], None]) -> None:
    with scripted(OPEN) as (script, url), make(openai.OpenAI, url) as plain:
        leave(ask_for_stream(retrying(plain)))
        assert eventually(lambda: script.left == 1)


def read_one_and_forget(client: Any) -> None:
    for _ in ask_for_stream(client):
        break


def test_a_stream_that_is_forgotten_closes_its_connection_when_it_is_collected() -> None:
    with scripted(OPEN) as (script, url), make(openai.OpenAI, url) as plain:
        read_one_and_forget(retrying(plain))
        gc.collect()
        assert eventually(lambda: script.left == 1)


def test_a_helper_that_is_left_early_closes_its_connection() -> None:
    with scripted(OPEN) as (script, url), make(openai.OpenAI, url) as plain:
        with chat_stream(retrying(plain)) as stream:
            next(iter(stream))
        assert eventually(lambda: script.left == 1)


async def aread_one_and_close(stream: Any) -> None:
    async for _ in stream:
        break
    await stream.close()


async def aread_one_in_a_with(stream: Any) -> None:
    async with stream:
        async for _ in stream:
            break


async def aclose_unread(stream: Any) -> None:
    await stream.close()


async def acancel(stream: Any) -> None:
    read_one = asyncio.Event()

    async def read() -> None:
        async for _ in stream:
            read_one.set()

    task = asyncio.create_task(read())
    await read_one.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def atime_out(stream: Any) -> None:
    async def read() -> None:
        async for _ in stream:
            pass

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(read(), 0.05)


ALEAVING = [aread_one_and_close, aread_one_in_a_with, aclose_unread, acancel, atime_out]


@pytest.mark.parametrize("leave", ALEAVING)
@pytest.mark.anyio
async def test_an_async_stream_that_is_left_early_closes_its_connection(
    leave: Callable[[Any], Awaitable[None]],
) -> None:
    with scripted(OPEN) as (script, url):
        async with make(openai.AsyncOpenAI, url) as plain:
            await leave(await ask_for_stream(retrying(plain)))
            assert await asyncio.to_thread(eventually, lambda: script.left == 1)


async def aread_one_and_forget(client: Any) -> None:
    async for _ in await ask_for_stream(client):
        break


@pytest.mark.anyio
async def test_an_async_stream_that_is_forgotten_closes_its_connection_quietly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with scripted(OPEN) as (script, url):
        async with make(openai.AsyncOpenAI, url) as plain:
            await aread_one_and_forget(retrying(plain))
            for _ in range(20):
                # Each collected generator is closed by a task, which lets go of the next.
                gc.collect()
                await asyncio.sleep(0)
            assert await asyncio.to_thread(eventually, lambda: script.left == 1)
    assert caplog.text == ""


@pytest.mark.anyio
async def test_a_call_cancelled_before_the_first_item_closes_its_connection() -> None:
    with scripted(streamed(end=STALL), WHOLE) as (script, url):
        async with make(openai.AsyncOpenAI, url) as plain:
            task = asyncio.create_task(ask_for_stream(retrying(plain, wait=no_wait)))
            assert await asyncio.to_thread(eventually, lambda: bool(script.arrived))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(eventually, lambda: script.left == 1)
    assert len(script.arrived) == 1


def test_what_is_read_after_a_close_is_as_openai_has_it() -> None:
    with scripted(OPEN) as (_, url), make(openai.OpenAI, url) as plain:
        stream = ask_for_stream(retrying(plain))
        next(stream)
        stream.close()
        left: Any = None
        try:
            left = list(stream)
        except Exception as error:
            left = error
    assert not isinstance(left, StreamInterrupted)


@contextmanager
def stream_in_session(url: str) -> Iterator[tuple[Any, str]]:
    with make(openai.OpenAI, url) as plain:
        with tenuto.run() as run, run.agent("planner") as agent:
            stream = ask_for_stream(retrying(plain, wait=no_wait))
        yield stream, agent.session_id


def test_a_stream_read_after_its_scope_was_tried_again_within_it() -> None:
    with scripted(streamed(end=CUT), streamed(), WHOLE) as (script, url):
        with stream_in_session(url) as (stream, session_id):
            assert len(list(stream)) == 2
    assert [one.headers["x-session-id"] for one in script.arrived] == [session_id] * 3
    assert [one.turn["attempt"] for one in script.arrived] == ["0", "1", "2"]


@asynccontextmanager
async def many_streams(script: Scripted, url: str, count: int) -> AsyncIterator[list[Any]]:
    async with make(openai.AsyncOpenAI, url) as plain:
        client = retrying(plain, wait=no_wait)
        yield await asyncio.gather(*(ask_for_stream(client) for _ in range(count)))


@pytest.mark.anyio
async def test_streams_read_side_by_side_keep_their_own_items() -> None:
    answers = [streamed(*chat_chunks(*str(i) * 3), DONE) for i in range(8)]
    with scripted(*answers) as (script, url):
        async with many_streams(script, url, len(answers)) as streams:
            texts = await asyncio.gather(*map(text_of, streams))
    assert sorted(texts) == [str(i) * 3 for i in range(8)]


async def text_of(stream: Any) -> str:
    return "".join([chunk.choices[0].delta.content async for chunk in stream])
