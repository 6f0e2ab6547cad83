"""Programs that know nothing of our headers gain on a real vLLM, through two API processes."""

from __future__ import annotations

import json
import re

import httpx
import pytest

from tenuto_vllm.placement import by_hash

MESSAGES = [{"role": "user", "content": "x" * 200}]
BODIES = {
    "/v1/chat/completions": {"model": "tiny", "messages": MESSAGES, "max_tokens": 4},
    "/v1/messages": {"model": "tiny", "messages": MESSAGES, "max_tokens": 4},
    "/v1/responses": {"model": "tiny", "input": "x" * 200, "max_output_tokens": 4},
    "/v1/completions": {"model": "tiny", "prompt": "x" * 200, "max_tokens": 4},
}


def context(**words):
    return {"vllm_xargs": {"agentic_context": json.dumps(words)}}


# Name -> route, and what the program's session says in a turn: headers and body fields.
PROGRAMS = {
    "Claude Code": (
        "/v1/messages",
        lambda session, turn: (
            {"x-claude-code-session-id": "shared", "x-claude-code-agent-id": session},
            {},
        ),
    ),
    "Codex": (
        "/v1/responses",
        lambda session, turn: ({"session-id": "shared", "thread-id": session}, {}),
    ),
    "OpenCode": (
        "/v1/chat/completions",
        lambda session, turn: ({"x-session-affinity": session, "X-Session-Id": session}, {}),
    ),
    "Dynamo": (
        "/v1/completions",
        lambda session, turn: ({"X-Dynamo-Session-ID": session}, {}),
    ),
    "vLLM's own field": (
        "/v1/responses",
        lambda session, turn: ({}, {"session_id": session}),
    ),
    "vllm-router in prefill/decode mode": (
        "/v1/chat/completions",
        lambda session, turn: ({}, context(program_id=session, step_id=turn)),
    ),
    "our words behind such a router": (
        "/v1/messages",
        lambda session, turn: ({}, context(tenuto={"session": session, "turn": f"n={turn}"})),
    ),
    "baggage": (
        "/v1/chat/completions",
        lambda session, turn: ({"baggage": f"session.id={session},tenuto.turn=n%3D{turn}"}, {}),
    ),
}


@pytest.fixture
def server(recording):
    return recording


def post(server, route, headers, fields, *, stream=False):
    return httpx.post(
        server.root_url + route,
        headers=headers,
        json={**BODIES[route], **fields, "stream": stream},
        timeout=120,
        trust_env=False,
    )


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_session_that_echoes_nothing_stays_on_one_rank(server, program, stream):
    route, say = PROGRAMS[program]
    for number in range(4):
        session = f"session-{number}"
        home = by_hash(session, 2)
        for turn in range(3):
            answer = post(server, route, *say(session, turn), stream=stream)
            assert answer.status_code == 200
            assert answer.headers["X-Engine-Rank"] == str(home)
            assert answer.headers["X-Agent-Served"] == f"rank={home}, home={home}, why=hash"
    assert {by_hash(f"session-{number}", 2) for number in range(4)} == {0, 1}


def test_a_long_body_in_many_chunks_is_placed_and_answered(server):
    route = "/v1/completions"
    fields = {
        "prompt": [7] * 4000,
        "vllm_xargs": {"session_id": "session-1"},
        "user": "u" * 300_000,
    }
    body = json.dumps({**BODIES[route], **fields}).encode()
    answer = httpx.post(
        server.root_url + route,
        headers={"Content-Type": "application/json"},
        content=(body[at : at + 10_000] for at in range(0, len(body), 10_000)),
        timeout=120,
        trust_env=False,
    )
    assert answer.json()["usage"]["prompt_tokens"] == 4000
    assert answer.headers["X-Engine-Rank"] == str(by_hash("session-1", 2))


@pytest.mark.parametrize(
    "fields",
    [{"session_id": 7}, {"vllm_xargs": {"agentic_context": {"program_id": "session-1"}}}],
    ids=["a number", "an object where vLLM wants a string"],
)
def test_what_vllm_refuses_it_refuses_as_before_and_no_home_is_named(server, fields):
    answer = post(server, "/v1/chat/completions", {}, fields)
    assert answer.status_code == 400
    assert "X-Agent-Served" not in answer.headers


# What differs between two answers of one stock vLLM, and what the tests' own middleware adds.
CHANGING = re.compile(
    rb'"(created|created_at|completed_at)": ?[0-9.]+|(resp|msg|chatcmpl|modelperm)[_-]\w+'
    rb'|"root":"[^"]*"|"vllm-[0-9.]+-dp2-[0-9a-f]+"'
)
BESIDE = {"date", "x-engine-rank", "x-api-pid"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("route", [*BODIES, "/v1/models", "/no/such/route"])
def test_a_request_without_a_session_is_answered_byte_for_byte_as_by_stock_vllm(
    server, observed, route, stream
):
    def answered(server):
        headers = {"X-Request-ID": "a-request", "X-User-ID": "somebody"}
        # Shorter than a block, so that no earlier call has left anything of it in a cache.
        short = {"messages": [{"role": "user", "content": "y"}], "input": "y", "prompt": "y"}
        fields = {"temperature": 0} | {k: short[k] for k in short.keys() & BODIES.get(route, {})}
        # A busy server may put two tokens into one event.
        fields["max_output_tokens" if route == "/v1/responses" else "max_tokens"] = 1
        if route in BODIES:
            answer = post(server, route, headers, fields, stream=stream)
        else:
            answer = httpx.get(server.root_url + route, headers=headers, trust_env=False)
        told = [(k, v) for k, v in answer.headers.multi_items() if k not in BESIDE]
        return answer.status_code, told, CHANGING.sub(b"", answer.content)

    stock, ours = answered(observed), answered(server)
    assert stock[2]
    assert ours == stock


def test_news_is_taken_and_counted_by_the_process_that_hears_it(server):
    with httpx.Client(base_url=server.root_url, trust_env=False) as one_connection:
        before = one_connection.get("/tenuto/state").json()
        turns = [{"session": "session-1", "next": "tool", "gap": 40_000}]
        assert one_connection.post("/tenuto/turns", json=turns).json()["accepted"] == 1
        ended = {"sessions": ["session-1", "session-2"]}
        assert one_connection.post("/tenuto/sessions/end", json=ended).json()["accepted"] == 2
        assert one_connection.get("/tenuto/turns").status_code == 405
        after = one_connection.get("/tenuto/state").json()
    assert before["process"] == after["process"]
    told = {key: after["news"][key] - before["news"][key] for key in ("turns", "ended")}
    assert told == {"turns": 1, "ended": 2}
