"""What each model call tells the engine of its session, over real sockets."""

from __future__ import annotations

import json
import socket
import sys
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from tenuto_vllm._wire import Turn
from tenuto_vllm.engine.seam import install_hints, request_box
from tenuto_vllm.engine.told import is_scheduler_ours
from tenuto_vllm.retention.hint import unpack
from tests.hinted import HintedApp, hinted
from tests.loopback import eventually

SID = "0123456789abcdef"
CHAT = "/v1/chat/completions"
TURN = 'n=3, next=tool, gap=4000, ttl=60, at=(0 -1), class=main, prio=2, drop="another-one"'
CONTEXT = json.dumps({"tenuto": {"session": SID, "turn": "n=1, next=user"}})
CARRIERS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "headers": ({"X-Session-ID": SID}, {}),
    "Claude Code": ({"x-claude-code-session-id": SID}, {}),
    "Codex": ({"thread-id": SID}, {}),
    "body": ({}, {"session_id": SID}),
    "vllm_xargs": ({}, {"vllm_xargs": {"agentic_context": CONTEXT}}),
    "baggage": ({"baggage": f"session.id={SID}"}, {}),
}


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_session_in_any_carrier_reaches_the_engine_and_the_body_stays(
    carrier: str, ranks: int
) -> None:
    headers, body = CARRIERS[carrier]
    app = HintedApp(ranks=ranks)
    with hinted(app) as http:
        sent = http.build_request("POST", CHAT, json={"model": "m", **body}, headers=headers)
        assert http.send(sent).status_code == 200
    (hint,) = app.hints
    assert hint is not None
    assert hint.session == f"0.{SID}"
    _, arrived, raw = app.requests[0]
    assert raw == sent.content
    assert arrived.get("x-session-id") == headers.get("X-Session-ID")


def test_all_that_a_turn_says_reaches_the_engine_but_what_has_ended() -> None:
    app = HintedApp()
    headers = {
        "X-Session-ID": SID,
        "X-Agent-Turn": TURN,
        "X-Agent-Run-ID": "run-of-mine",
        "X-Parent-Session-ID": "parent-one",
    }
    with hinted(app) as http:
        http.post(CHAT, json={}, headers=headers)
        http.post(CHAT, json={}, headers={"X-Session-ID": SID, "X-Agent-Turn": "class=auxiliary"})
    turn, side = app.hints
    assert turn is not None
    assert side is not None
    assert (turn.session, turn.run, turn.parent) == (f"0.{SID}", "run-of-mine", "0.parent-one")
    expected = Turn(n=3, next="tool", gap=4000, ttl=60, at=(0, -1), kind="main", prio=2)
    assert turn.turn == expected
    assert side.turn.kind == "auxiliary"


def test_every_prompt_of_a_call_carries_it() -> None:
    app = HintedApp()
    with hinted(app) as http:
        http.post("/v1/completions", json={}, headers={"X-Session-ID": SID, "x-prompts": "3"})
    assert [hint and hint.session for hint in app.hints] == [f"0.{SID}"] * 3


def test_a_request_of_no_session_carries_none_even_behind_one_on_its_connection() -> None:
    app = HintedApp()
    marked = f"X-Session-ID: {SID}\r\n"
    with hinted(app) as http:
        url = urlsplit(str(http.base_url))
        with socket.create_connection((url.hostname, url.port), timeout=10) as connection:
            for path, headers in ((CHAT, marked), (CHAT, ""), (CHAT, marked), ("/other", "")):
                head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: 0\r\n\r\n"
                connection.sendall(head.encode())
            assert eventually(lambda: len(app.requests) == 4)
    assert [hint is not None for hint in app.hints] == [True, False, True, False]


def test_hints_that_the_application_gives_itself_stay() -> None:
    app = HintedApp()
    app.given = object()
    with hinted(app) as http:
        http.post(CHAT, json={}, headers={"X-Session-ID": SID})
    assert app.requests[0][0]["kv_hints"] is app.given


@pytest.mark.parametrize("carrier", ["headers", "Claude Code", "baggage"])
def test_a_vllm_without_the_field_gets_it_in_the_session_header_of_which_there_is_one(
    carrier: str,
) -> None:
    app = HintedApp(has_field=False)
    headers, _ = CARRIERS[carrier]
    with hinted(app) as http:
        http.post(CHAT, json={}, headers=headers | {"x-API-key": "k"})
    _, arrived, _ = app.requests[0]
    hint = unpack(arrived["x-session-id"])
    assert hint is not None
    assert hint.session.endswith(f".{SID}")


OFF: dict[str, tuple[object, dict[str, Any]]] = {
    "vLLM's own scheduler": (None, {}),
    "another scheduler": ("their.Scheduler", {}),
    "retention off": ("tenuto_vllm.TurnScheduler", {"retention": False}),
    "a dry run": ("tenuto_vllm.TurnScheduler", {"shadow": True}),
}


@pytest.mark.parametrize("why", OFF)
@pytest.mark.parametrize("has_field", [True, False])
def test_where_no_leases_are_kept_nothing_is_sent_or_asked(why: str, has_field: bool) -> None:
    scheduler, settings = OFF[why]
    app = HintedApp(scheduler=scheduler, has_field=has_field)
    with hinted(app, **settings) as http:
        turn = {"X-Session-ID": SID, "X-Agent-Turn": 'ttl=60, drop="another-one"'}
        answer = http.post(CHAT, json={}, headers=turn)
        http.post("/tenuto/turns", json=[{"session": SID, "next": "tool"}])
        http.post("/tenuto/sessions/end", json={"sessions": [SID]})
        http.get("/metrics")
        assert http.get("/tenuto/state").json()["retention"] is None
    assert app.hints == [None]
    assert app.requests[0][1]["x-session-id"] == SID
    assert "lease" not in answer.headers.get("X-Agent-Served", "")
    assert (app.told, app.asked) == ([], [])


def tags(*keys: dict[str, str], app: HintedApp | None = None) -> list[str]:
    app = app or HintedApp()
    with hinted(app) as http:
        for key in keys:
            http.post(CHAT, json={}, headers={"X-Session-ID": SID, **key})
    return [hint.session.partition(".")[0] for hint in app.hints if hint is not None]


def test_a_tenant_is_its_credential_in_any_header_and_in_every_process() -> None:
    one, same, bare, other, none = tags(
        {"Authorization": "Bearer key-one"},
        {"x-api-key": "key-one"},
        {"api-key": "key-one"},
        {"Authorization": "Bearer key-two"},
        {},
    )
    assert one == same == bare != other
    assert none == "0"
    assert {len(one), len(other)} == {12}
    assert tags({"x-api-key": "key-one"}) == [one]
    elsewhere = HintedApp()
    elsewhere.state.engine_client.vllm_config.instance_id = "fghij"
    elsewhere.state.engine_client.engine_core.stats_update_address = "ipc://y"
    assert tags({"x-api-key": "key-one"}, app=elsewhere) != [one]


def test_a_parent_is_looked_for_within_the_tenant() -> None:
    app = HintedApp()
    with hinted(app) as http:
        headers = {"X-Session-ID": SID, "X-Parent-Session-ID": "parent-one", "api-key": "k"}
        http.post(CHAT, json={}, headers=headers)
    (hint,) = app.hints
    assert hint is not None
    assert hint.parent.partition(".")[0] == hint.session.partition(".")[0] != "0"


class Ours:
    """As `TurnScheduler` is, to who only looks where a class comes from."""


Ours.__module__ = "tenuto_vllm.engine.scheduler"


class Theirs(Ours):
    """Made of the mixin, in a module of their own."""


@pytest.mark.parametrize(
    ("scheduler", "is_ours"),
    [
        ("tenuto_vllm.TurnScheduler", True),
        ("tenuto_vllm.engine.scheduler.TurnScheduler", True),
        (Ours, True),
        (Theirs, True),
        (f"{__name__}.Theirs", True),
        (None, False),
        (object, False),
        ("tenuto_vllm_other.Scheduler", False),
        ("json.JSONDecoder", False),
        ("Scheduler", False),
        ("nowhere.Scheduler", False),
        (7, False),
    ],
)
def test_a_scheduler_is_ours_by_where_it_or_what_it_is_made_of_comes_from(
    scheduler: object, is_ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, __name__, SimpleNamespace(Theirs=Theirs))
    config = SimpleNamespace(scheduler_config=SimpleNamespace(scheduler_cls=scheduler))
    assert is_scheduler_ours(SimpleNamespace(vllm_config=config)) is is_ours


def test_an_engine_client_of_another_shape_has_no_scheduler_of_ours_and_takes_no_hints() -> None:
    assert not is_scheduler_ours(object())
    assert not install_hints(object())
    assert not install_hints(SimpleNamespace(input_processor=SimpleNamespace(process_inputs=7)))


def test_the_hook_is_there_once_and_in_front_of_the_form_that_runs_in_a_thread() -> None:
    seen: list[object] = []

    def process_inputs(request_id: str, kv_hints: object = None) -> None:
        seen.append(kv_hints)

    inputs = SimpleNamespace(process_inputs=process_inputs, process_inputs_async=process_inputs)
    client = SimpleNamespace(input_processor=inputs)
    assert install_hints(client)
    hooks = inputs.process_inputs, inputs.process_inputs_async
    assert install_hints(client)
    assert (inputs.process_inputs, inputs.process_inputs_async) == hooks
    with request_box({}) as box:
        box.kv_hints = "ours"
        inputs.process_inputs("r")
        inputs.process_inputs_async("r", kv_hints=None)
        inputs.process_inputs("r", None)
        inputs.process_inputs("r", kv_hints="theirs")
    inputs.process_inputs("r")
    assert seen == ["ours", "ours", None, "theirs", None]


def test_a_hint_that_cannot_be_made_costs_the_hint_and_not_the_request() -> None:
    app = HintedApp()
    with hinted(app) as http, pytest.MonkeyPatch.context() as patch:
        http.post(CHAT, json={}, headers={"X-Session-ID": SID})
        patch.setitem(sys.modules, "vllm.v1.kv_hints", SimpleNamespace())
        headers = {"X-Session-ID": SID, "X-Agent-Turn": "ttl=60"}
        answer = http.post(CHAT, json={}, headers=headers)
    assert answer.status_code == 200
    assert "lease" not in answer.headers["X-Agent-Served"]
    assert [hint is not None for hint in app.hints] == [True, False]
