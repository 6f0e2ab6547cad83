"""What a session says after its answer: two routes, the markers that say the same, one seam."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import tenuto_vllm
from tenuto_vllm.embedded import EngineSettings, serve
from tenuto_vllm.news import News, TurnNews
from tests.loopback import eventually

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "x" * 200}], "max_tokens": 4}
A, B = "session-a", "session-b"
ROUTES = {"/tenuto/turns": [{"session": A}], "/tenuto/sessions/end": {"sessions": [A]}}

Told = list[News]


def server(told: Told, *, fails: bool = False) -> Any:
    def hear(news: News) -> None:
        told.append(news)
        if fails:
            raise ValueError("of the listener")

    class Listening(tenuto_vllm.TurnMiddleware):
        def __init__(self, app: Any) -> None:
            super().__init__(app, on_news=hear)

    return serve(EngineSettings(prefill_tokens_per_s=float("inf")), [Listening])


@pytest.fixture
def told() -> Told:
    return []


@pytest.fixture
def http(told: Told) -> Iterator[httpx.Client]:
    with server(told) as url, httpx.Client(base_url=url, timeout=10) as client:
        yield client


def status(http: httpx.Client) -> dict[str, Any]:
    return http.get("/tenuto/state").json()


def test_turns_and_ends_are_counted_and_handed_on(http: httpx.Client, told: Told) -> None:
    turns = [{"session": A, "next": "tool", "gap": 40_000, "ttl": 300}, {"session": B, "gap": -1}]
    answer = http.post("/tenuto/turns", json=[*turns, {"session": ""}])
    assert (answer.status_code, answer.json()) == (200, {"accepted": 2, "dropped": 2})
    answer = http.post("/tenuto/sessions/end", json={"sessions": [A, B, 7]})
    assert answer.json() == {"accepted": 2, "dropped": 1}
    assert told == [
        News(turns=(TurnNews(A, "tool", 40_000, 300), TurnNews(B))),
        News(ended=(A, B)),
    ]
    assert status(http)["news"] == {"turns": 2, "ended": 2}
    assert status(http)["dropped"] == {"news.gap": 1, "news.session": 2}


def test_news_moves_no_session(http: httpx.Client) -> None:
    def rank() -> str:
        headers = {"X-Session-ID": A}
        return http.post("/v1/chat/completions", json=CHAT, headers=headers).headers[
            "X-Engine-Rank"
        ]

    home = rank()
    http.post("/tenuto/turns", json=[{"session": A, "next": "end", "ttl": 0}])
    http.post("/tenuto/sessions/end", json={"sessions": [A]})
    assert rank() == home


@pytest.mark.parametrize("route", ROUTES)
def test_a_body_that_is_no_news_is_refused_and_says_what_would_be(
    http: httpx.Client, told: Told, route: str
) -> None:
    for body in (b"", b"[", b'"session-a"', b"\xff"):
        assert http.post(route, content=body).status_code == 400
    answer = http.post(route, content=b'{"session": "session-a"}')
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("The body must be an ")
    assert "session-a" not in answer.text
    assert (told, status(http)["news"]) == ([], {"turns": 0, "ended": 0})


@pytest.mark.parametrize("route", ROUTES)
def test_more_than_64_kb_is_refused_before_it_has_all_come(http: httpx.Client, route: str) -> None:
    assert http.post(route, content=b" " * 65_500 + json.dumps(ROUTES[route]).encode()).is_success
    answer = http.post(route, content=iter([b" " * 30_000] * 3))
    assert answer.status_code == 413
    assert "65536 bytes" in answer.json()["error"]["message"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
@pytest.mark.parametrize("route", ROUTES)
def test_another_method_is_not_allowed(http: httpx.Client, route: str, method: str) -> None:
    answer = http.request(method, route)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")


def test_a_turn_that_names_finished_sessions_or_its_own_end_is_news_of_the_same_kind(
    http: httpx.Client, told: Told
) -> None:
    drop = {"X-Session-ID": A, "X-Agent-Turn": f'n=3, drop="{B} session-c"'}
    last = {"X-Session-ID": A, "X-Agent-Turn": "n=4, next=end"}
    final = {"X-Dynamo-Session-ID": B, "X-Dynamo-Session-Final": "true"}
    for count, headers in enumerate((drop, last, final), start=1):
        assert http.post("/v1/chat/completions", json=CHAT, headers=headers).status_code == 200
        assert eventually(lambda count=count: len(told) == count)
    assert told == [News(ended=(B, "session-c")), News(ended=(A,)), News(ended=(B,))]
    assert status(http)["news"] == {"turns": 0, "ended": 4}


def test_the_end_of_a_session_is_told_when_its_last_answer_has_gone(
    http: httpx.Client, told: Told
) -> None:
    body = {**CHAT, "stream": True, "max_tokens": 400, "session_id": A}
    context = {"tenuto": {"session": A, "turn": "n=1, next=end"}}
    body["vllm_xargs"] = {"agentic_context": json.dumps(context)}
    with http.stream("POST", "/v1/chat/completions", json=body) as answer:
        chunks = answer.iter_raw()
        next(chunks)
        assert told == []
        for _ in chunks:
            pass
    assert eventually(lambda: told == [News(ended=(A,))])
    assert status(http)["news"]["ended"] == 1


def test_a_listener_that_fails_costs_nobody_an_answer(told: Told) -> None:
    headers = {"X-Session-ID": A, "X-Agent-Turn": f'n=1, next=end, drop="{B}"'}
    with server(told, fails=True) as url, httpx.Client(base_url=url) as http:
        assert http.post("/tenuto/sessions/end", json={"sessions": [A]}).status_code == 200
        answer = http.post("/v1/chat/completions", json=CHAT, headers=headers)
        assert answer.status_code == 200
        assert "X-Agent-Served" in answer.headers
        assert eventually(lambda: status(http)["dropped"] == {"on_news": 3})
    assert len(told) == 3
