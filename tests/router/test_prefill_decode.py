"""vllm-router in prefill/decode mode: headers stop at it, the body goes to both workers."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import tenuto
from tenuto import _wire, dialects
from tenuto_vllm.carriers import in_body, in_headers
from tenuto_vllm.engine.transfers import DEADLINE
from tests.loopback import Arrived
from tests.router.fleet import Fleet, routed

SESSIONS = 16
PREFILL, DECODE = ("a", "b"), ("c", "d")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    options = ["--policy", "consistent_hash", "--vllm-pd-disaggregation"]
    options += ["--prefill", "{a}", "--prefill", "{b}", "--decode", "{c}", "--decode", "{d}"]
    with routed(tmp_path_factory.mktemp("router") / "log", 4, *options) as fleet:
        yield fleet


@pytest.fixture
def fleet(running: Fleet) -> Fleet:
    running.forget()
    return running


def read_back(arrived: Arrived) -> _wire.Markers:
    """Read the markers as the extension does, from what arrived."""
    headers = [(name.encode(), value.encode()) for name, value in arrived.headers.items()]
    assert in_headers(headers).markers is None
    said = in_body(json.dumps(arrived.body).encode(), headers)
    assert said.dropped == ()
    assert said.markers is not None
    turn = _wire.Turn(*said.markers.turn)
    return _wire.Markers(*said.markers)._replace(turn=turn)


def chat(client: Any, text: str, **more: Any) -> Any:
    return client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": text}], **more
    )


CALLS = {
    "chat": chat,
    "completions": lambda client, text: client.completions.create(model="m", prompt=text),
    "responses": lambda client, text: client.responses.create(model="m", input=text),
    "stream": lambda client, text: list(chat(client, text, stream=True)),
}


@pytest.mark.parametrize("route", CALLS)
def test_the_markers_reach_both_workers_in_the_body(fleet: Fleet, route: str, prompt: str) -> None:
    client = fleet.client("vllm-router-pd")
    with tenuto.run(prompt) as run, run.agent("planner") as agent:
        CALLS[route](client, prompt)
    [(_, prefilled)], [(_, decoded)] = fleet.calls(*PREFILL), fleet.calls(*DECODE)
    for arrived in (prefilled, decoded):
        assert arrived.markers == {}
        assert arrived.body["session_id"] == agent.session_id
        said = read_back(arrived)
        assert (said.session, said.parent, said.run) == (
            agent.session_id,
            run.session_id,
            run.run_id,
        )
        assert (said.turn.n, said.turn.attempt) == (0, 0)
        context = json.loads(arrived.body["vllm_xargs"]["agentic_context"])
        assert context["root_program_id"] == context["parent_program_id"] == run.session_id
        assert (context["step_id"], context["blocks_parent"]) == (0, True)


def test_a_session_keeps_its_prefill_and_its_decode_worker(fleet: Fleet, prompt: str) -> None:
    client = fleet.client("vllm-router-pd")
    for at in range(SESSIONS):
        with tenuto.run(f"{prompt} {at}"):
            for turn in range(3):
                chat(client, f"{prompt} {at} {turn}")
    for side in (PREFILL, DECODE):
        workers: dict[str, set[str]] = defaultdict(set)
        turns: dict[str, list[int | None]] = defaultdict(list)
        for name, arrived in fleet.calls(*side):
            said = read_back(arrived)
            workers[said.session].add(name)
            turns[said.session].append(said.turn.n)
        assert len(workers) == SESSIONS
        assert all(len(names) == 1 for names in workers.values())
        assert len(set.union(*workers.values())) > 1
        assert all(ns == [0, 1, 2] for ns in turns.values())


@pytest.mark.parametrize("stream", [False, True])
def test_the_decode_workers_token_comes_back_and_goes_on_in_the_body(
    fleet: Fleet, prompt: str, stream: bool
) -> None:
    client = fleet.client("vllm-router-pd")
    with tenuto.run(prompt):
        for at in range(2):
            answer = chat(client, f"{prompt} {at}", stream=stream)
            if stream:
                assert list(answer)
    decoded = fleet.calls(*DECODE)
    [name] = {name for name, _ in decoded}
    tokens = [read_back(arrived).affinity for _, arrived in decoded]
    assert tokens == [None, f"{name}.0"]


def test_the_callers_own_arguments_arrive_beside_ours(fleet: Fleet, prompt: str) -> None:
    client = fleet.client("vllm-router-pd")
    with tenuto.run(prompt) as run:
        chat(client, prompt, extra_body={"vllm_xargs": {"theirs": 1}})
    for _, arrived in fleet.calls():
        assert arrived.body["vllm_xargs"]["theirs"] == 1
        assert read_back(arrived).session == run.session_id


def test_baggage_is_the_one_header_that_arrives(fleet: Fleet, prompt: str) -> None:
    said = _wire.Markers("s" * 32, "p" * 32, "r" * 32)
    value = dialects.with_markers("theirs=1", said, "n=0, attempt=0")
    headers = {"baggage": value or "", "X-Session-ID": said.session, "X-Agent-Turn": "n=0"}
    body = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
    url = f"{fleet.url}/v1/chat/completions"
    httpx.post(url, json=body, headers=headers).raise_for_status()
    for _, arrived in fleet.calls():
        assert arrived.headers["baggage"] == value
        assert arrived.markers == {}


def test_the_deadline_that_a_prefill_worker_writes_reaches_the_decode_worker(
    fleet: Fleet, prompt: str
) -> None:
    offer = {"do_remote_prefill": True, "remote_engine_id": "e", DEADLINE: 1_800_000_000.5}
    for name in PREFILL:
        fleet.workers[name].answer_fields["kv_transfer_params"] = offer
    with tenuto.run(prompt):
        chat(fleet.client("vllm-router-pd"), prompt)
    [(_, decoded)] = fleet.calls(*DECODE)
    assert decoded.body["kv_transfer_params"] == offer


def test_news_reaches_no_worker(fleet: Fleet) -> None:
    # So the row has no `news`: a path of ours is not known, and is answered with an error.
    assert dialects.named("vllm-router-pd").news is None
    answer = httpx.post(f"{fleet.url}/tenuto/turns", json=[{"session": "s" * 32, "next": "tool"}])
    assert answer.status_code >= 400
    assert fleet.calls() == []
