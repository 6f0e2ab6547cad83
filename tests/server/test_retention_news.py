"""What the engines are told beside the requests, and what becomes of it where none listens."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest

from tenuto_vllm.engine.told import MOST_WAITING
from tests.hinted import HintedApp, hinted
from tests.loopback import eventually

CHAT = "/v1/chat/completions"
A, B = "session-a", "session-b"
ONE, TWO = {"Authorization": "Bearer one"}, {"Authorization": "Bearer two"}
GONE = "Call to tenuto_told method failed: 'EngineCoreProc' object has no attribute 'tenuto_told'"


def end(http: httpx.Client, *sessions: str, key: dict[str, str] = ONE) -> None:
    answer = http.post("/tenuto/sessions/end", json={"sessions": sessions}, headers=key)
    assert answer.json()["accepted"] == len(sessions)


def turns(http: httpx.Client, *items: dict[str, Any], key: dict[str, str] = ONE) -> None:
    assert http.post("/tenuto/turns", json=items, headers=key).json()["accepted"] == len(items)


def dropped(http: httpx.Client) -> int:
    return http.get("/tenuto/state").json()["dropped"].get("told", 0)


def test_turns_go_to_the_sessions_rank_and_of_one_that_is_not_known_to_all() -> None:
    app = HintedApp(ranks=4)
    with hinted(app) as http:
        marked = {"X-Session-ID": A, "X-Agent-Turn": "n=0, next=tool", **ONE}
        served = http.post(CHAT, json={}, headers=marked).headers["X-Agent-Served"]
        turns(http, {"session": A, "next": "tool", "gap": 4000, "ttl": 60})
        assert eventually(lambda: len(app.told) == 1)
        turns(http, {"session": B})
        assert eventually(lambda: len(app.told) == 5)
    rank, news = app.told[0]
    assert served.startswith(f"rank={rank},")
    tag = news["turns"][0][0].removesuffix(A)
    assert news == {"turns": [[tag + A, "tool", 4000, 60]], "ended": []}
    assert [one for _, one in app.told[1:]] == [
        {"turns": [[tag + B, None, None, None]], "ended": []}
    ] * 4
    assert sorted(rank for rank, _ in app.told[1:]) == [0, 1, 2, 3]


def test_what_has_ended_is_told_to_all_ranks_by_the_route_and_by_drop() -> None:
    app = HintedApp()
    with hinted(app) as http:
        end(http, A)
        assert eventually(lambda: len(app.told) == 2)
        marked = {"X-Session-ID": "session-c", "X-Agent-Turn": f'next=tool, drop="{A} {B}"', **ONE}
        http.post(CHAT, json={}, headers=marked)
        assert eventually(lambda: len(app.told) == 4)
    ended = [[name.partition(".")[2] for name in news["ended"]] for _, news in app.told]
    assert ended == [[A], [A], [A, B], [A, B]]
    assert {rank for rank, _ in app.told} == {0, 1}


def test_a_turn_that_says_it_is_the_last_releases_nothing() -> None:
    app = HintedApp(ranks=1)
    with hinted(app) as http:
        headers = {"X-Session-ID": A, "X-Agent-Turn": "next=end"}
        http.post(CHAT, json={}, headers=headers)
        turns(http, {"session": A, "next": "end"})
        end(http, B)
        assert eventually(lambda: bool(app.told) and bool(app.told[-1][1]["ended"]))
    assert app.turns() == [[A, "end", None, None]]
    assert [name[-9:] for _, news in app.told for name in news["ended"]] == [B]
    assert app.hints[0] is not None
    assert app.hints[0].turn.next == "end"


@pytest.mark.parametrize("key", [TWO, {}])
def test_another_tenant_names_another_session_by_the_same_id(key: dict[str, str]) -> None:
    app = HintedApp(ranks=1)
    with hinted(app) as http:
        headers = {"X-Session-ID": A, "X-Agent-Turn": "n=0, next=tool"}
        http.post(CHAT, json={}, headers=headers | ONE)
        end(http, A, key=key)
        drop = {"X-Session-ID": B, "X-Agent-Turn": f'next=tool, drop="{A}"'}
        http.post(CHAT, json={}, headers=drop | key)
        turns(http, {"session": A, "next": "end"}, key=key)
        assert eventually(lambda: len(app.turns()) == 1)
        end(http, A)
        assert eventually(lambda: _named(app)[-1] == app.hints[0].session)  # type: ignore[union-attr]
    assert app.hints[0] is not None
    assert app.hints[0].session not in _named(app)[:-1]


def _named(app: HintedApp) -> list[str]:
    said = [news["ended"] + [turn[0] for turn in news["turns"]] for _, news in app.told]
    return [name for names in said for name in names]


def test_an_engine_has_one_call_at_a_time_and_the_next_takes_all_that_came_meanwhile() -> None:
    app = HintedApp(ranks=1)
    app.gate = False
    with hinted(app) as http:
        turns(http, {"session": A, "next": "tool"})
        turns(http, {"session": A, "next": "user"}, {"session": B, "gap": 1})
        turns(http, {"session": B, "gap": 2})
        end(http, A, "session-c")
        app.gate = True
        assert eventually(lambda: len(app.told) == 2)
        turns(http, {"session": B, "gap": 3})
        assert eventually(lambda: len(app.told) == 3)
    assert app.turns() == [[A, "tool", None, None], [B, None, 2, None], [B, None, 3, None]]
    assert [len(news["ended"]) for _, news in app.told] == [0, 2, 0]


def test_no_request_waits_for_an_engine_that_does_not_answer() -> None:
    app = HintedApp()
    app.gate = False
    with hinted(app) as http:
        for n in range(3):
            marked = {"X-Session-ID": A, "X-Agent-Turn": f'n={n}, drop="{B}"'}
            assert http.post(CHAT, json={}, headers=marked, timeout=2).status_code == 200
        turns(http, {"session": A})
        app.gate = True
        assert eventually(lambda: len(app.told) >= 3)


def test_what_waits_is_bounded_and_what_there_is_no_room_for_is_counted() -> None:
    app = HintedApp(ranks=1)
    app.gate = False
    with hinted(app) as http:
        end(http, "the-first-one")
        for batch in range(MOST_WAITING // 256 + 1):
            end(http, *(f"session-{batch}-{n}" for n in range(256)))
        app.gate = True
        assert eventually(lambda: len(app.told) == 2)
        assert dropped(http) == 256
        end(http, A)
        assert eventually(lambda: len(app.told) == 3)
    assert [len(news["ended"]) for _, news in app.told] == [1, MOST_WAITING, 1]


def test_engines_without_the_method_are_asked_once_and_one_event_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = HintedApp(ranks=1)
    app.failure = Exception(GONE)
    with caplog.at_level(logging.INFO, "tenuto_vllm"), hinted(app) as http:
        end(http, A)
        assert eventually(lambda: "retention_off" in caplog.text)
        for _ in range(3):
            end(http, A)
            answer = http.post(CHAT, json={}, headers={"X-Session-ID": A})
            assert answer.status_code == 200
        assert http.get("/metrics").status_code == 200
        assert http.get("/tenuto/state").json()["retention"] is None
    assert (len(app.told), app.asked) == (1, [])
    assert caplog.text.count("retention_off") == 1
    assert A not in caplog.text


def test_after_a_call_that_fails_an_engine_is_left_alone_for_a_while_and_what_is_lost_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = HintedApp(ranks=1)
    app.failure = RuntimeError("the engine is busy")
    with caplog.at_level(logging.INFO, "tenuto_vllm"), hinted(app) as http:
        end(http, A)
        assert eventually(lambda: "kind=told" in caplog.text)
        end(http, A, B)
        turns(http, {"session": A})
        assert http.get("/tenuto/state").json()["retention"] == [None]
        assert dropped(http) == 4
    assert (len(app.told), app.asked) == (1, [])


def test_what_waits_behind_a_call_that_fails_is_lost_and_counted_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = HintedApp(ranks=1)
    app.failure = RuntimeError("the engine is busy")
    app.gate = False
    with caplog.at_level(logging.INFO, "tenuto_vllm"), hinted(app) as http:
        end(http, A, B)
        turns(http, {"session": "session-c"})
        app.gate = True
        assert eventually(lambda: "kind=told" in caplog.text)
        assert dropped(http) == 3
    assert len(app.told) == 1


def test_an_engine_client_without_the_calls_costs_the_news_and_not_the_request() -> None:
    app = HintedApp(ranks=1)
    del app.state.engine_client.engine_core._call_utility_async
    with hinted(app) as http:
        end(http, A)
        assert http.post(CHAT, json={}, headers={"X-Session-ID": A}).status_code == 200
