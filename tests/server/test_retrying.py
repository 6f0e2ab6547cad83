"""One layer tries a call again, by what the server says and how it fails; on real sockets.

Every test that takes `ask` runs with a sync and with an async client.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import logging
import socket
import time
from collections.abc import Callable
from typing import Any

import openai
import pytest
import tenacity

import tenuto
from tenuto.retry import retrying
from tests.calls import SYNC_CALLS, make
from tests.loopback import CHAT, eventually
from tests.retry_calls import ASKS, USER, no_wait
from tests.scripted import CUT, RESET, STALL, Answer, Scripted, failure, found, scripted

OK = found(CHAT)
Ask = Callable[..., Any]


@pytest.fixture(params=ASKS)
def ask(request: pytest.FixtureRequest) -> Ask:
    return ASKS[request.param]


def error(**body: Any) -> dict[str, Any]:
    return {"error": {"message": "scripted", **body}}


# What happened: the server's answer, requests, and what is raised. Two rows are reports:
# https://github.com/langchain-ai/langchainjs/issues/1929 and
# https://github.com/openai/openai-python/pull/3507: an exhausted quota is a 429 and was retried
# as a rate limit, so that its error showed late. openai's client looks at the status alone.
OUTCOMES: dict[str, tuple[Answer, int, type[Exception]]] = {
    "408": (failure(408), 3, openai.APIStatusError),
    "409 lock timeout": (failure(409, error(code="lock_timeout")), 3, openai.ConflictError),
    "409": (failure(409, error(code="exists")), 1, openai.ConflictError),
    "429": (failure(429), 3, openai.RateLimitError),
    "500": (failure(500), 3, openai.InternalServerError),
    "503": (failure(503), 3, openai.InternalServerError),
    "insufficient_quota": (
        failure(429, error(code="insufficient_quota")),
        1,
        openai.RateLimitError,
    ),
    "billing_hard_limit_reached": (
        failure(429, error(code="billing_hard_limit_reached")),
        1,
        openai.RateLimitError,
    ),
    "400": (failure(400), 1, openai.BadRequestError),
    "401": (failure(401), 1, openai.AuthenticationError),
    "403": (failure(403), 1, openai.PermissionDeniedError),
    "404": (failure(404), 1, openai.NotFoundError),
    "422": (failure(422), 1, openai.UnprocessableEntityError),
    "x-should-retry: true on 400": (
        failure(400, x_should_retry="true"),
        3,
        openai.BadRequestError,
    ),
    "x-should-retry: false on 500": (
        failure(500, x_should_retry="false"),
        1,
        openai.InternalServerError,
    ),
    "Retry-After 121": (failure(429, retry_after="121"), 1, openai.RateLimitError),
    "disconnect before the head": ([CUT], 3, openai.APIConnectionError),
    "reset before the head": ([RESET], 3, openai.APIConnectionError),
    "200 and bad JSON": (found(b"{nonsense"), 1, json.JSONDecodeError),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_failure_is_tried_as_often_as_it_may_pass(name: str, ask: Ask) -> None:
    answer, requests, kind = OUTCOMES[name]
    with scripted(*[answer] * 5) as (script, url), tenuto.run(), pytest.raises(kind) as raised:
        ask(url)
    assert type(raised.value).__module__ in ("openai", "json.decoder")
    assert [one.turn["attempt"] for one in script.arrived] == [str(i) for i in range(requests)]
    assert {one.turn["n"] for one in script.arrived} == {"0"}
    assert len({one.headers["x-session-id"] for one in script.arrived}) == 1
    assert {one.headers["x-stainless-retry-count"] for one in script.arrived} == {"0"}


def test_a_read_timeout_is_tried_again_and_each_connection_is_closed(ask: Ask) -> None:
    with scripted([STALL], [STALL], OK) as (script, url):
        ask(url, {"timeout": 0.5})
        assert len(script.arrived) == 3
        assert eventually(lambda: script.left == 2)


def test_a_refused_connection_is_tried_again(ask: Ask) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    tried: list[int] = []

    def wait(state: tenacity.RetryCallState) -> float:
        tried.append(state.attempt_number)
        return 0.0

    with pytest.raises(openai.APIConnectionError):
        ask(f"http://127.0.0.1:{port}", wait=wait)
    assert tried == [1, 2, 3]


def test_what_fails_and_then_works_is_answered(ask: Ask) -> None:
    with scripted(failure(500), [CUT], OK) as (script, url):
        assert ask(url).choices[0].finish_reason == "stop"
    assert len(script.arrived) == 3


def test_attempts_are_as_many_as_were_asked_for(ask: Ask) -> None:
    with scripted(*[failure(500)] * 9) as (script, url), pytest.raises(openai.InternalServerError):
        ask(url, attempts=5)
    assert len(script.arrived) == 5


def test_the_error_is_the_one_that_openai_raised(ask: Ask) -> None:
    answer = failure(503, error(code="busy"), x_request_id="req-1")
    with scripted(*[answer] * 3) as (_, url), pytest.raises(openai.InternalServerError) as raised:
        ask(url)
    assert type(raised.value) is openai.InternalServerError
    assert (raised.value.code, raised.value.request_id) == ("busy", "req-1")
    assert raised.value.response.status_code == 503


@pytest.mark.parametrize(
    ("name", "value"),
    [("retry_after_ms", "1"), ("retry_after", "0.001")],
)
def test_the_servers_wait_is_obeyed_before_our_own(name: str, value: str, ask: Ask) -> None:
    def wait(_: Any) -> float:
        raise AssertionError("the server has said how long to wait")

    with scripted(failure(429, **{name: value}), OK) as (script, url):
        ask(url, wait=wait, deadline_s=30)
    assert len(script.arrived) == 2


def test_a_date_to_retry_after_is_waited_for(ask: Ask) -> None:
    # A date has whole seconds: between 0 and 1 s are left of the next one.
    at_s = int(time.time()) + 1
    answer = failure(429, retry_after=email.utils.formatdate(at_s, usegmt=True))
    with scripted(answer, OK) as (script, url):
        ask(url, wait=lambda _: 60.0, deadline_s=30)
        assert time.time() >= at_s
    assert len(script.arrived) == 2


@pytest.mark.parametrize("headers", [{"retry_after": "60"}, {"retry_after_ms": "60000"}, {}])
def test_no_wait_goes_past_the_deadline(headers: dict[str, str], ask: Ask) -> None:
    with scripted(*[failure(429, **headers)] * 3) as (script, url):
        begun_s = time.monotonic()
        with pytest.raises(openai.RateLimitError):
            ask(url, deadline_s=20, wait=lambda _: 60.0)
        assert time.monotonic() - begun_s < 10
    assert len(script.arrived) == 1


def test_the_deadline_also_ends_an_attempt_that_stalls(ask: Ask) -> None:
    with scripted(*[[STALL]] * 9) as (script, url):
        begun_s = time.monotonic()
        with pytest.raises(openai.APITimeoutError):
            ask(url, {"timeout": 60}, deadline_s=0.4, attempts=9)
        assert time.monotonic() - begun_s < 10
    assert len(script.arrived) == 1


def test_a_deadline_ends_a_call_that_has_attempts_left(ask: Ask) -> None:
    with scripted(*[failure(500, retry_after_ms="50")] * 999) as (script, url):
        with pytest.raises(openai.InternalServerError):
            ask(url, deadline_s=0.5, attempts=999)
    assert 1 < len(script.arrived) <= 11


def test_a_wait_function_that_raises_costs_no_call(ask: Ask) -> None:
    with scripted(failure(500), OK) as (script, url):
        ask(url, wait=lambda _: 1 / 0)
    assert len(script.arrived) == 2


def test_a_log_filter_that_raises_costs_no_call(
    ask: Ask, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Any) -> bool:
        raised.append(1)
        raise ValueError("of the filter")

    raised: list[int] = []
    caplog.set_level("DEBUG", "tenuto")
    monkeypatch.setattr(logging.getLogger("tenuto"), "filters", [fail])
    with scripted(failure(500), OK) as (script, url):
        ask(url)
    assert len(script.arrived) == 2
    assert raised


def test_a_retry_is_logged_without_ids(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tenuto")
    with scripted(failure(500, x_request_id="req-1"), OK) as (_, url), tenuto.run() as run:
        ask(url)
    said = "\n".join(record.getMessage() for record in caplog.records if record.name == "tenuto")
    assert said == "attempt 1 of 3 failed (InternalServerError), the next one follows in 0.000 s"
    assert run.session_id not in caplog.text


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_an_answer_that_cannot_be_parsed_is_not_asked_for_again(finish: str) -> None:
    cut_off = {**CHAT, "choices": [{**CHAT["choices"][0], "finish_reason": finish}]}
    kinds = (openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError)
    with scripted(*[found(cut_off)] * 3) as (script, url):
        with make(openai.OpenAI, url) as plain, pytest.raises(kinds):
            SYNC_CALLS["parse"](retrying(plain))
    assert len(script.arrived) == 1


def test_ctrl_c_ends_a_call_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> Any:
        tried.append(1)
        raise KeyboardInterrupt

    tried: list[int] = []
    with make(openai.OpenAI, "http://127.0.0.1:9") as plain:
        monkeypatch.setattr(plain._client, "send", interrupt)
        with pytest.raises(KeyboardInterrupt):
            retrying(plain, wait=no_wait).models.list()
    assert tried == [1]


async def cancelled_while(script: Scripted, url: str, arrived: int, **options: Any) -> None:
    async with make(openai.AsyncOpenAI, url) as plain:
        made = retrying(plain, **options)
        task = asyncio.create_task(made.chat.completions.create(model="m", messages=USER))
        assert await asyncio.to_thread(eventually, lambda: len(script.arrived) >= arrived)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert all(
            connection.is_idle() for connection in plain._client._transport._pool.connections
        )


@pytest.mark.anyio
async def test_a_cancelled_attempt_is_not_made_again_and_its_connection_is_closed() -> None:
    with scripted([STALL], OK) as (script, url):
        await cancelled_while(script, url, 1)
    assert len(script.arrived) == 1


@pytest.mark.anyio
async def test_a_call_can_be_cancelled_while_it_waits() -> None:
    with scripted(failure(500), OK) as (script, url):
        await cancelled_while(script, url, 1, wait=lambda _: 60.0)
    assert len(script.arrived) == 1
