"""Programs that know nothing of our headers, in front of the embedded engine, on the wire."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import httpx
import pytest

import tenuto_vllm
from tenuto_vllm.carriers import foreign_id
from tenuto_vllm.config import Settings
from tenuto_vllm.embedded import EngineSettings, serve
from tenuto_vllm.placement import by_hash
from tests.loopback import eventually

RANKS = 4
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "x" * 200}], "max_tokens": 4}
RESPONSES = {"model": "tiny", "input": "x" * 200, "max_output_tokens": 4}


def xargs(**context: Any) -> dict[str, Any]:
    return {"vllm_xargs": {"agentic_context": json.dumps(context)}}


def claude_code(session: str, turn: int) -> tuple[str, dict[str, str], dict[str, Any]]:
    headers = {
        "x-claude-code-session-id": "0f8fad5b-d9cb-469f-a165-70867728950e",
        "x-claude-code-agent-id": session,
        "x-claude-code-request-class": "subagent",
    }
    return "/v1/chat/completions", headers, CHAT


def codex(session: str, turn: int) -> tuple[str, dict[str, str], dict[str, Any]]:
    headers = {"session-id": "0199-shared-by-all", "thread-id": session}
    return "/v1/responses", headers, {**RESPONSES, "prompt_cache_key": session}


def opencode(session: str, turn: int) -> tuple[str, dict[str, str], dict[str, Any]]:
    return "/v1/chat/completions", {"x-session-affinity": session, "X-Session-Id": session}, CHAT


def dynamo(session: str, turn: int) -> tuple[str, dict[str, str], dict[str, Any]]:
    headers = {"X-Dynamo-Session-ID": session, "X-Dynamo-Session-Final": str(turn == 5).lower()}
    return "/v1/completions", headers, {"model": "tiny", "prompt": "x" * 200, "max_tokens": 4}


def body_field(session: str, turn: int) -> tuple[str, dict[str, str], dict[str, Any]]:
    return "/v1/chat/completions", {}, {**CHAT, "session_id": session}


def router_words(session: str, turn: int) -> tuple[str, dict[str, str], dict[str, Any]]:
    return "/v1/chat/completions", {}, {**CHAT, **xargs(program_id=session, step_id=turn)}


def our_words_in_the_body(session: str, turn: int) -> tuple[str, dict[str, str], dict[str, Any]]:
    words = {"session": session, "turn": f"n={turn}, attempt=0"}
    return "/v1/chat/completions", {}, {**CHAT, **xargs(tenuto=words)}


def baggage(session: str, turn: int) -> tuple[str, dict[str, str], dict[str, Any]]:
    members = f"session.id={session},tenuto.turn=n%3D{turn}"
    return "/v1/responses", {"baggage": members}, RESPONSES


PROGRAMS = {
    "alias": [claude_code, codex, dynamo],
    "headers": [opencode],
    "body": [body_field],
    "vllm_xargs": [router_words, our_words_in_the_body],
    "baggage": [baggage],
}


@pytest.fixture(scope="module")
def http() -> Any:
    size = EngineSettings(ranks=RANKS, prefill_tokens_per_s=float("inf"))
    with (
        serve(size, [tenuto_vllm.TurnMiddleware]) as url,
        httpx.Client(base_url=url, timeout=10) as client,
    ):
        yield client


def status(http: httpx.Client) -> dict[str, Any]:
    return http.get("/tenuto/state").json()


@pytest.mark.parametrize(
    ("carrier", "program"),
    [(carrier, program) for carrier, programs in PROGRAMS.items() for program in programs],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_a_program_that_echoes_nothing_stays_on_one_rank_and_is_told_which(
    http: httpx.Client, carrier: str, program: Any
) -> None:
    before = status(http)["carriers"].get(carrier, 0)
    homes: dict[str, set[str]] = {}
    for turn in range(6):
        for number in range(8):
            session = f"session-{number}"
            route, headers, body = program(session, turn)
            answer = http.post(route, headers=headers, json=body)
            rank = answer.headers["X-Engine-Rank"]
            assert answer.headers["X-Agent-Served"] == f"rank={rank}, home={rank}, why=hash"
            assert answer.headers["X-Agent-Affinity"].endswith(f".{rank}")
            homes.setdefault(session, set()).add(rank)
    assert homes == {session: {str(by_hash(session, RANKS))} for session in homes}
    assert len(set.union(*homes.values())) > 1
    assert status(http)["carriers"][carrier] == before + 48


def test_an_id_of_any_shape_holds_its_session_together(http: httpx.Client) -> None:
    for session in ("7", "user@example.org/chat:42", "сессия 1", "s" * 300, "session-one_t12"):
        for _ in range(3):
            answer = http.post("/v1/chat/completions", json={**CHAT, "session_id": session})
            assert answer.headers["X-Engine-Rank"] == str(by_hash(foreign_id(session) or "", RANKS))


def test_agents_of_one_program_are_sessions_of_their_own(http: httpx.Client) -> None:
    ranks = {
        http.post(route, headers=headers, json=body).headers["X-Engine-Rank"]
        for route, headers, body in (claude_code(f"agent-{i}-of-one", 0) for i in range(12))
    }
    assert len(ranks) > 1


@pytest.mark.parametrize("program", [codex, body_field, our_words_in_the_body])
def test_a_token_that_is_echoed_beats_the_hash_only_in_our_own_words(
    http: httpx.Client, program: Any
) -> None:
    route, headers, body = program("session-a", 1)
    token = http.post(route, headers=headers, json=body).headers["X-Agent-Affinity"]
    instance, _, rank = token.rpartition(".")
    other = f"{instance}.{(int(rank) + 1) % RANKS}"
    # A header of ours beside another carrier's session belongs to no session: nothing is mixed.
    mixed = http.post(route, headers={**headers, "X-Agent-Affinity": other}, json=body)
    assert mixed.headers["X-Agent-Served"].endswith("why=hash")
    words = {"session": "session-a", "affinity": other}
    echoed = http.post("/v1/chat/completions", json={**CHAT, **xargs(tenuto=words)})
    assert echoed.headers["X-Agent-Affinity"] == other
    assert echoed.headers["X-Agent-Served"].endswith("why=home")


def test_the_session_of_a_trusted_rank_is_read_from_the_body_too() -> None:
    trusting = partial(tenuto_vllm.TurnMiddleware, settings=Settings(trust_rank=True))
    with serve(EngineSettings(ranks=2), [trusting]) as url, httpx.Client(base_url=url) as http:
        for rank in ("0", "1"):
            named = {"X-data-parallel-rank": rank}
            marked = {**CHAT, "session_id": "session-a"}
            answer = http.post("/v1/chat/completions", headers=named, json=marked)
            assert answer.headers["X-Agent-Served"] == f"rank={rank}, home={rank}, why=unkeyed"
            assert answer.headers["X-Engine-Rank"] == rank
            bare = http.post("/v1/chat/completions", headers=named, json=CHAT)
            assert bare.headers["X-Engine-Rank"] == rank
            assert "X-Agent-Served" not in bare.headers
        assert eventually(lambda: status(http)["in_flight"] == [0, 0])


def test_a_stream_is_placed_by_its_body_and_a_client_that_leaves_gives_the_load_back() -> None:
    size = EngineSettings(ranks=2, decode_tokens_per_s=50)
    body = {**CHAT, "stream": True, "max_tokens": 4000, "session_id": "session-a"}
    with (
        serve(size, [tenuto_vllm.TurnMiddleware]) as url,
        httpx.Client(base_url=url, timeout=10) as http,
    ):
        with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            assert answer.headers["X-Agent-Served"].endswith("why=hash")
            chunks = answer.iter_raw()
            next(chunks)
            in_flight = status(http)["in_flight"]
            assert in_flight[by_hash("session-a", 2)] == 1
        assert eventually(lambda: sum(status(http)["in_flight"]) == 0)


BAD = {
    "alias.session": ({"thread-id": "\x7f" * 20}, {}),
    "body.session": ({}, {"session_params": {"session_id": 7}}),
    "vllm_xargs": ({}, {"vllm_xargs": {"agentic_context": "no JSON"}}),
    "baggage.session": ({"baggage": "session.id=%FF"}, {}),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_value_is_counted_by_kind_and_the_request_answered_as_unmarked(kind: str) -> None:
    headers, fields = BAD[kind]
    with (
        serve(EngineSettings(), [tenuto_vllm.TurnMiddleware]) as url,
        httpx.Client(base_url=url) as http,
    ):
        answer = http.post("/v1/chat/completions", headers=headers, json={**CHAT, **fields})
        assert answer.status_code == 200
        assert "X-Agent-Served" not in answer.headers
        assert status(http)["dropped"] == {kind: 1}
        assert status(http)["carriers"] == {}
