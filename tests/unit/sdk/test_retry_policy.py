"""Which failures are tried again, where, and after how long."""

from __future__ import annotations

import email.utils
import json
from typing import Any

import httpx
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import StreamInterrupted
from tenuto.retry import policy
from tenuto.retry.failover import Routes, order
from tests.loopback import openai_http

REQUEST = openai_http.Request("POST", "http://127.0.0.1/v1/chat/completions")


def status_error(status: int, error: Any = None, **headers: str) -> openai.APIStatusError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = openai_http.Response(
        status, headers=named, content=json.dumps({"error": error or {}}), request=REQUEST
    )
    client = openai.OpenAI(api_key="k")
    made = client._make_status_error_from_response(response)
    client.close()
    return made


def connection_error(cause: Exception) -> openai.APIConnectionError:
    timeout = "Timeout" in type(cause).__name__
    error = (
        openai.APITimeoutError(REQUEST) if timeout else openai.APIConnectionError(request=REQUEST)
    )
    error.__cause__ = cause
    return error


def event_error(**body: Any) -> openai.APIError:
    return openai.APIError("told in a stream", REQUEST, body=body)


AGAIN = {
    "refused": connection_error(httpx.ConnectError("refused")),
    "read timeout": connection_error(openai_http.ReadTimeout("slow")),
    "disconnect": connection_error(openai_http.RemoteProtocolError("gone")),
    "408": status_error(408),
    "429": status_error(429),
    "429 with a code": status_error(429, {"code": "rate_limit_exceeded"}),
    "500": status_error(500),
    "502": status_error(502),
    "503": status_error(503),
    "504": status_error(504),
    "529": status_error(529),
    "409 lock timeout": status_error(409, {"code": "lock_timeout"}),
    "409 locked": status_error(409, {"message": "the thread is locked"}),
    "400 the server wants again": status_error(400, x_should_retry="true"),
    "event server_error": event_error(code="server_error"),
    "event rate_limit_exceeded": event_error(code="rate_limit_exceeded"),
    "event overloaded": event_error(code="overloaded"),
    "event with a type only": event_error(code=None, type="server_error"),
    "event with a number": event_error(code=500, type="InternalServerError"),
    "a stream of nothing": StreamInterrupted("ended"),
}
NEVER = {
    "400": status_error(400),
    "401": status_error(401),
    "403": status_error(403),
    "404": status_error(404),
    "409": status_error(409, {"message": "it exists, check the clock"}),
    "422": status_error(422),
    "insufficient_quota": status_error(429, {"code": "insufficient_quota"}),
    "quota as a type": status_error(429, {"type": "insufficient_quota"}),
    "billing_hard_limit_reached": status_error(400, {"code": "billing_hard_limit_reached"}),
    "quota the server wants again": status_error(
        429, {"code": "insufficient_quota"}, x_should_retry="true"
    ),
    "500 the server wants no more": status_error(500, x_should_retry="false"),
    "event invalid_prompt": event_error(code="invalid_prompt"),
    "event with number 400": event_error(code=400),
    "event insufficient_quota": event_error(code="insufficient_quota", type="server_error"),
    "a stream with a part": StreamInterrupted("ended", ["chunk"]),
    "bad JSON": json.JSONDecodeError("bad", "{", 1),
    "validation": openai.APIResponseValidationError(
        openai_http.Response(200, request=REQUEST), body={"code": "server_error"}
    ),
    "of openai, not of the API": openai.OpenAIError("no key"),
    "Ctrl-C": KeyboardInterrupt(),
    "another": RuntimeError("theirs"),
}


@pytest.mark.parametrize("name", AGAIN)
def test_what_may_pass_is_tried_again(name: str) -> None:
    assert policy.is_retryable(AGAIN[name])


@pytest.mark.parametrize("name", NEVER)
def test_what_would_fail_again_is_not_tried_again(name: str) -> None:
    assert not policy.is_retryable(NEVER[name])


@pytest.mark.parametrize(
    ("error", "safe"),
    [
        (connection_error(httpx.ConnectError("refused")), True),
        (connection_error(openai_http.ConnectTimeout("far")), True),
        (connection_error(openai_http.PoolTimeout("full")), True),
        (connection_error(openai_http.ReadTimeout("slow")), False),
        (connection_error(openai_http.WriteError("gone")), False),
        (connection_error(openai_http.RemoteProtocolError("gone")), False),
        (status_error(429), True),
        (status_error(503), True),
        (status_error(500), False),
        (status_error(502), False),
        (status_error(504), False),
        (status_error(500, x_should_retry="true"), True),
        (event_error(code="server_error"), False),
        (StreamInterrupted("ended"), False),
    ],
)
def test_work_that_a_server_may_have_begun_is_not_safe_to_repeat(
    error: Exception, safe: bool
) -> None:
    assert policy.is_replay_safe(error) is safe


@pytest.mark.parametrize(
    ("url", "bodies", "stateful"),
    [
        ("/responses", [{"input": "hi"}], False),
        ("/responses", [{"previous_response_id": "r"}], True),
        ("/responses", [{"conversation": {"id": "c"}}], True),
        ("/responses", [{"background": True}], True),
        ("/responses", [{"background": False, "previous_response_id": None}], False),
        ("/responses", [{"input": "hi"}, {"conversation": "c"}], True),
        ("/conversations/c/items", [{"items": []}], True),
        ("/threads/t/messages", [None, None], True),
        ("/chat/completions", [{"messages": []}, None], False),
    ],
)
def test_calls_that_add_to_what_a_server_keeps_are_known(
    url: str, bodies: list[Any], stateful: bool
) -> None:
    assert policy.is_stateful(url, *bodies) is stateful


NOW_S = 1_700_000_000.0
DATE = email.utils.formatdate(NOW_S + 7, usegmt=True)


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry_after": "3"}, 3.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after_ms": "250"}, 0.25),
        ({"retry_after_ms": "250", "retry_after": "9"}, 0.25),
        ({"retry_after_ms": "soon", "retry_after": "9"}, 9.0),
        ({"retry_after": DATE}, 7.0),
        ({"retry_after": email.utils.formatdate(NOW_S - 7, usegmt=True)}, None),
        ({"retry_after": "0"}, None),
        ({"retry_after": "-1"}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "1e999"}, float("inf")),
        ({"retry_after": "in a while"}, None),
        ({"retry_after": "Sun, 99 Foo 2023 99:99:99 GMT"}, None),
    ],
)
def test_a_servers_wait_is_read_as_milliseconds_seconds_or_a_date(
    headers: dict[str, str], wait_s: float | None
) -> None:
    assert policy.server_wait_s(status_error(429, **headers), NOW_S) == wait_s


@given(st.text(max_size=40))
def test_no_retry_after_can_raise(text: str) -> None:
    response = openai_http.Response(429, headers={"retry-after": text.encode()}, request=REQUEST)
    error = openai.RateLimitError("busy", response=response, body=None)
    assert (policy.server_wait_s(error, NOW_S) or 1.0) > 0


@pytest.mark.parametrize(
    ("error", "moves", "down"),
    [
        (connection_error(openai_http.ReadTimeout("slow")), True, True),
        (status_error(500), True, True),
        (status_error(503), True, True),
        (StreamInterrupted("ended"), True, True),
        (event_error(code="server_error"), True, False),
        (status_error(429), True, False),
        (status_error(408), False, False),
        (status_error(409, {"code": "lock_timeout"}), False, False),
        (status_error(400, x_should_retry="true"), False, False),
        (RuntimeError("theirs"), False, False),
    ],
)
def test_only_what_concerns_the_server_moves_a_call_and_only_failures_move_the_next(
    error: Exception, moves: bool, down: bool
) -> None:
    assert (policy.moves_on(error), policy.is_down(error)) == (moves, down)


URLS = st.lists(st.sampled_from("abcdef"), unique=True, min_size=1)
DOWN = st.dictionaries(st.sampled_from("abcdef"), st.floats(-10, 10))


def naive_order(urls: list[str], down_until_s: dict[str, float], now_s: float) -> list[str]:
    up = [url for url in urls if url not in down_until_s or down_until_s[url] <= now_s]
    down = [url for url in urls if url not in up]
    for i in range(len(down)):
        for j in range(len(down) - 1 - i):
            if down_until_s[down[j]] > down_until_s[down[j + 1]]:
                down[j], down[j + 1] = down[j + 1], down[j]
    return up + down


@given(URLS, DOWN, st.floats(-10, 10))
def test_a_call_tries_urls_that_are_up_first_and_each_one_once(
    urls: list[str], down_until_s: dict[str, float], now_s: float
) -> None:
    assert order(urls, down_until_s, now_s) == naive_order(urls, down_until_s, now_s)


def test_a_url_that_failed_is_the_first_again_once_it_has_cooled_down() -> None:
    routes = Routes(["home", "spare"], cooldown_s=30)
    assert routes.order(now_s=0) == ["home", "spare"]
    routes.failed("home", now_s=0)
    assert routes.order(now_s=29.9) == ["spare", "home"]
    assert routes.order(now_s=30) == ["home", "spare"]


def test_an_answer_ends_a_cool_down() -> None:
    routes = Routes(["home", "spare"], cooldown_s=30)
    routes.failed("home", now_s=0)
    routes.answered("home")
    assert routes.order(now_s=1) == ["home", "spare"]
