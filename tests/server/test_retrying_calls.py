"""Every way to call is one logical call with one retry layer, also with another around it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import tenacity

import tenuto
from tenuto.retry import retrying
from tests.calls import ASYNC_CALLS, AT_ONCE, HTTP, SYNC_CALLS, check_one_call, make
from tests.loopback import CHAT, RESPONSE, Recorder, serving
from tests.retry_calls import USER, no_wait
from tests.scripted import (
    CUT,
    DONE,
    RESET,
    Answer,
    chat_chunks,
    failure,
    found,
    scripted,
    streamed,
)

OK = found(CHAT)


@pytest.fixture(scope="module")
def recording() -> Iterator[tuple[Recorder, str]]:
    recorder = Recorder(answer_headers=AT_ONCE)
    with serving(recorder) as url:
        yield recorder, url


@pytest.fixture
def server(recording: tuple[Recorder, str]) -> tuple[Recorder, str]:
    recorder, _ = recording
    recorder.arrived, recorder.script = [], [500, 500]
    return recording


# A request that the server may have begun is not made a second time where that would show.
BEGUN: list[Answer] = [[CUT], [RESET], failure(500), failure(502), failure(504)]
NOT_BEGUN: list[Answer] = [failure(429), failure(503), failure(500, x_should_retry="true")]


@pytest.mark.parametrize("field", [{"previous_response_id": "r"}, {"conversation": "c"}])
@pytest.mark.parametrize("answer", BEGUN)
def test_a_call_that_adds_to_a_servers_state_is_not_repeated_once_it_may_have_begun(
    field: dict[str, str], answer: Answer
) -> None:
    with scripted(answer, found(RESPONSE)) as (script, url), make(openai.OpenAI, url) as plain:
        client = retrying(plain, wait=no_wait)
        with pytest.raises(openai.APIError):
            client.responses.create(model="m", input="hi", **field)
        assert len(script.arrived) == 1
        # Without the field it is a call like any other.
        client.responses.create(model="m", input="hi")


@pytest.mark.parametrize("field", [{"previous_response_id": "r"}, {"conversation": "c"}])
@pytest.mark.parametrize("answer", NOT_BEGUN)
def test_a_call_that_adds_to_a_servers_state_is_repeated_when_it_was_refused(
    field: dict[str, str], answer: Answer
) -> None:
    with scripted(answer, found(RESPONSE)) as (script, url), make(openai.OpenAI, url) as plain:
        retrying(plain, wait=no_wait).responses.create(model="m", input="hi", **field)
    assert len(script.arrived) == 2


@pytest.mark.parametrize("call", SYNC_CALLS)
@pytest.mark.parametrize("http", HTTP)
@pytest.mark.parametrize("kind", [openai.OpenAI, openai.AzureOpenAI])
def test_every_way_to_call_is_one_call_of_three_attempts(
    kind: type[Any], http: str, call: str, server: tuple[Recorder, str]
) -> None:
    recorder, url = server
    with make(kind, url, http) as plain, tenuto.run() as run, run.agent("planner") as agent:
        SYNC_CALLS[call](retrying(plain))
    check_one_call(recorder.arrived, agent, run)
    assert {one.headers["x-stainless-retry-count"] for one in recorder.arrived} == {"0"}


@pytest.mark.parametrize("call", ASYNC_CALLS)
@pytest.mark.parametrize("http", HTTP)
@pytest.mark.parametrize("kind", [openai.AsyncOpenAI, openai.AsyncAzureOpenAI])
@pytest.mark.anyio
async def test_every_async_way_to_call_is_one_call_of_three_attempts(
    kind: type[Any], http: str, call: str, server: tuple[Recorder, str]
) -> None:
    recorder, url = server
    async with make(kind, url, http) as plain:
        async with tenuto.run() as run, run.agent("planner") as agent:
            await ASYNC_CALLS[call](retrying(plain))
    check_one_call(recorder.arrived, agent, run)
    assert {one.headers["x-stainless-retry-count"] for one in recorder.arrived} == {"0"}


@pytest.mark.parametrize(("max_retries", "requests"), [(0, 1), (1, 2), (4, 5)])
def test_max_retries_of_a_copy_sets_the_attempts_of_the_one_layer(
    max_retries: int, requests: int
) -> None:
    with scripted(*[failure(500)] * 9) as (script, url), make(openai.OpenAI, url) as plain:
        client = retrying(plain, wait=no_wait).with_options(max_retries=max_retries)
        with pytest.raises(openai.InternalServerError):
            client.chat.completions.create(model="m", messages=USER)
    assert len(script.arrived) == requests
    assert {one.headers["x-stainless-retry-count"] for one in script.arrived} == {"0"}


def test_retrying_twice_is_one_layer_with_what_was_said_last() -> None:
    with scripted(*[failure(500)] * 20) as (script, url), make(openai.OpenAI, url) as plain:
        client = retrying(retrying(plain, wait=no_wait), attempts=4, wait=no_wait)
        with pytest.raises(openai.InternalServerError):
            client.chat.completions.create(model="m", messages=USER)
    assert len(script.arrived) == 4


# https://github.com/mpfaffenberger/code_puppy/pull/317: retry layers around each other tried
# one rate-limited call up to 45 times. Each layer repeats all that the one inside it has done.
@pytest.mark.parametrize("layered", ["layered_sync", "layered_async"])
def test_an_outer_retry_layer_adds_its_tries_and_does_not_multiply(layered: str) -> None:
    with scripted(*[failure(500)] * 9) as (script, url), tenuto.run():
        with pytest.raises(openai.InternalServerError):
            globals()[layered](url)
    assert [one.turn["attempt"] for one in script.arrived] == ["0", "1", "2", "3", "4"]
    assert {one.turn["n"] for one in script.arrived} == {"0"}


OUTER: dict[str, Any] = {"stop": tenacity.stop_after_attempt(3), "reraise": True}


def layered_sync(url: str) -> None:
    with make(openai.OpenAI, url) as plain:
        create = retrying(plain, wait=no_wait).chat.completions.create
        tenacity.Retrying(**OUTER)(create, model="m", messages=USER)


def layered_async(url: str) -> None:
    async def work() -> None:
        async with make(openai.AsyncOpenAI, url) as plain:
            client = retrying(plain, wait=no_wait)

            async def once() -> Any:
                return await client.chat.completions.create(model="m", messages=USER)

            await tenacity.AsyncRetrying(**OUTER)(once)

    asyncio.run(work())


def test_a_layer_that_was_turned_off_does_not_count_as_one_that_gave_up() -> None:
    with scripted(*[failure(500)] * 9) as (script, url), make(openai.OpenAI, url) as plain:
        client = retrying(plain, wait=no_wait)
        for copied in (client.with_options(max_retries=0), client):
            with pytest.raises(openai.InternalServerError):
                copied.chat.completions.create(model="m", messages=USER)
    assert len(script.arrived) == 1 + 3


@pytest.mark.parametrize("step", ["client.Call", "call.policy.is_retryable", "attempt.guard"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_in_any_step_of_ours_leaves_the_call_as_it_was(
    step: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("of ours")

    monkeypatch.setattr(f"tenuto.retry.{step}", fail)
    answers = [streamed(*chat_chunks("a"), DONE)] if stream else [OK]
    with scripted(*answers, failure(400)) as (_, url), make(openai.OpenAI, url) as plain:
        client = retrying(plain, wait=no_wait)
        answer = client.chat.completions.create(model="m", messages=USER, stream=stream)
        pieces = list(answer) if stream else [answer]
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="m", messages=USER, stream=stream)
    assert pieces[-1].choices[0].finish_reason == "stop"


def test_the_attempts_of_a_call_share_the_key_that_openai_gives_its_own_retries() -> None:
    class Watched(openai.OpenAI):
        def _prepare_options(self, options: Any) -> Any:
            keys.append(options.idempotency_key)
            return super()._prepare_options(options)

    keys: list[str | None] = []
    with scripted(failure(500), OK, OK) as (_, url), Watched(base_url=url, api_key="k") as plain:
        client = retrying(plain, wait=no_wait)
        for content in ("one", "two"):
            messages: Any = [{"role": "user", "content": content}]
            client.chat.completions.create(model="m", messages=messages)
    first, again, second = keys
    assert None not in keys
    assert first == again != second


def test_a_call_that_works_again_has_all_its_attempts_again() -> None:
    down, up = failure(500), OK
    with scripted(down, down, up, down, down, up) as (script, url):
        with make(openai.OpenAI, url) as plain:
            client = retrying(plain, attempts=2, wait=no_wait)
            with pytest.raises(openai.InternalServerError):
                client.chat.completions.create(model="m", messages=USER)
            client.chat.completions.create(model="m", messages=USER)
            with pytest.raises(openai.InternalServerError):
                client.chat.completions.create(model="m", messages=USER)
    assert len(script.arrived) == 5


def test_another_call_than_the_one_given_up_has_all_its_attempts() -> None:
    with scripted(*[failure(500)] * 6) as (script, url), make(openai.OpenAI, url) as plain:
        client = retrying(plain, wait=no_wait)
        for content in ("one", "two"):
            with pytest.raises(openai.InternalServerError):
                client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": content}]
                )
    assert len(script.arrived) == 6


@pytest.mark.skipif(openai.VERSION.startswith("2."), reason="openai 2 sends any body again")
def test_a_body_that_can_be_read_once_only_is_sent_once() -> None:
    audio = iter([b"once"])
    headers = {"Content-Type": "audio/wav", "Content-Length": "4"}
    with scripted(*[failure(500)] * 3) as (script, url), make(openai.OpenAI, url) as plain:
        client = retrying(plain, wait=no_wait)
        with pytest.raises(openai.InternalServerError):
            client.post("/audio/raw", cast_to=object, content=audio, options={"headers": headers})
    assert [one.body for one in script.arrived] == [b"once"]


def test_a_file_is_sent_whole_every_time(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"sound")
    with scripted(*[failure(500)] * 3) as (script, url), make(openai.OpenAI, url) as plain:
        client = retrying(plain, wait=no_wait)
        with (tmp_path / "a.wav").open("rb") as file, pytest.raises(openai.InternalServerError):
            client.audio.transcriptions.create(model="m", file=file)
    assert [one.body.count(b"sound") for one in script.arrived] == [1, 1, 1]
