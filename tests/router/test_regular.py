"""vllm-router in regular mode: one worker for a session, and what of it arrives."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import tenuto
from tenuto import _wire, dialects
from tests.router.fleet import Fleet, routed, session_of

SESSIONS = 24
TURNS = 3


@pytest.fixture(scope="module", params=["consistent_hash", "sticky_least_loaded"])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    log = tmp_path_factory.mktemp("router") / "log"
    options = ("--policy", request.param, "--worker-urls", "{a}", "{b}", "{c}")
    with routed(log, 3, *options) as fleet:
        yield fleet


@pytest.fixture
def fleet(running: Fleet) -> Fleet:
    running.forget()
    return running


def chat(client: Any, text: str, **more: Any) -> Any:
    return client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": text}], **more
    )


def respond(client: Any, text: str) -> Any:
    return client.responses.create(model="m", input=text)


@pytest.mark.parametrize("call", [chat, respond])
def test_a_session_stays_on_one_worker_and_sessions_spread(
    fleet: Fleet, call: Any, prompt: str
) -> None:
    client = fleet.client("vllm-router")
    for at in range(SESSIONS):
        with tenuto.run(f"{prompt} {at}"):
            for turn in range(TURNS):
                call(client, f"{prompt} {at} {turn}")
    workers: dict[Any, set[str]] = defaultdict(set)
    for name, arrived in fleet.calls():
        workers[session_of(arrived)].add(name)
    assert len(workers) == SESSIONS
    assert all(len(names) == 1 for names in workers.values())
    assert len(set.union(*workers.values())) > 1


def test_without_a_session_all_chats_land_on_one_worker(fleet: Fleet, prompt: str) -> None:
    # The router hashes the constant `request:` when it finds no header that it knows.
    client = fleet.client(None)
    for at in range(SESSIONS):
        chat(client, f"{prompt} {at}")
    assert len({name for name, _ in fleet.calls()}) == 1


def test_headers_reach_the_worker_of_a_chat_and_of_a_completion(fleet: Fleet, prompt: str) -> None:
    client = fleet.client("vllm-router")
    with tenuto.run(prompt) as run, run.agent("planner") as agent:
        chat(client, prompt)
        client.completions.create(model="m", prompt=prompt)
    seen = [arrived for _, arrived in fleet.calls()]
    assert [arrived.headers["x-session-id"] for arrived in seen] == [agent.session_id] * 2
    assert [arrived.headers["x-parent-session-id"] for arrived in seen] == [run.session_id] * 2
    assert [arrived.turn["n"] for arrived in seen] == ["0", "1"]


def test_on_responses_no_header_arrives_and_the_body_says_it(fleet: Fleet, prompt: str) -> None:
    client = fleet.client("vllm-router")
    with tenuto.run(prompt) as run:
        respond(client, prompt)
    [(_, arrived)] = fleet.calls()
    assert arrived.markers == {}
    assert arrived.body["session_id"] == run.session_id
    context = json.loads(arrived.body["vllm_xargs"]["agentic_context"])
    assert context["tenuto"]["session"] == context["program_id"] == run.session_id
    assert context["tenuto"]["run"] == run.run_id
    assert _wire.decode_turn(context["tenuto"]["turn"].encode(), []).n == 0


@pytest.mark.parametrize("stream", [False, True])
def test_the_answers_token_comes_through_and_goes_back(
    fleet: Fleet, prompt: str, stream: bool
) -> None:
    client = fleet.client("vllm-router")
    with tenuto.run(prompt):
        for at in range(2):
            answer = chat(client, f"{prompt} {at}", stream=stream)
            if stream:
                assert list(answer)
        respond(client, prompt)
    calls = fleet.calls()
    [name] = {name for name, _ in calls}
    first, second, third = (arrived for _, arrived in calls)
    assert "x-agent-affinity" not in first.headers
    assert second.headers["x-agent-affinity"] == f"{name}.0"
    context = json.loads(third.body["vllm_xargs"]["agentic_context"])
    assert context["tenuto"]["affinity"] == f"{name}.0"


def test_an_unknown_path_reaches_the_sessions_worker_without_headers(
    fleet: Fleet, prompt: str
) -> None:
    client = fleet.client("vllm-router")
    for at in range(SESSIONS):
        fleet.forget()
        with tenuto.run(f"{prompt} {at}") as run:
            chat(client, prompt)
        [(home, _)] = fleet.calls()
        news = [{"session": run.session_id, "next": "tool"}]
        url = f"{fleet.url}/tenuto/turns"
        httpx.post(url, json=news, headers={"X-Session-ID": run.session_id}).raise_for_status()
        [told] = [(n, c) for n, w in fleet.workers.items() for c in w.arrived if c.body == news]
        assert told[0] == home
        assert told[1].markers == {}


def test_the_end_of_a_session_is_taken_whatever_its_id(fleet: Fleet) -> None:
    calls = dialects.end_calls(dialects.named("vllm-router"), ("unknown-session",))
    for call in calls:
        answer = httpx.request(call.method, fleet.url + call.path, params=call.query)
        assert answer.json() == {"status": "ok", "session_id": "unknown-session"}
    assert len(calls) == 1
