"""The main claim, on a real vLLM with two ranks, through one and two API processes."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections import Counter
from types import SimpleNamespace
from urllib.parse import urlsplit

import httpx
import pytest

from examples.demo.engines import vllm_server

from .conftest import OBSERVER, by_engine
from .sessions import run_sessions, turns_short_of_cache

BLOCK = 32
MIDDLEWARE = ("tenuto_vllm.TurnMiddleware", OBSERVER)
SID = "0123456789abcdef"
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "x" * 200}], "max_tokens": 4}
ROUTES = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"model": "tiny", "prompt": "x" * 200, "max_tokens": 4},
    "/v1/responses": {"model": "tiny", "input": "x" * 200, "max_output_tokens": 4},
    "/v1/messages": CHAT,
    "/v1/chat/completions/batch": {**CHAT, "messages": [CHAT["messages"]] * 2},
    "/inference/v1/generate": {
        "model": "tiny",
        "token_ids": [7] * 200,
        "sampling_params": {"max_tokens": 4},
    },
}
CALLS = [
    (route, stream)
    for route in ROUTES
    for stream in (False, True)
    if (route, stream) != ("/v1/chat/completions/batch", True)
]


@pytest.fixture(scope="module", params=[1, 2], ids=["one API process", "two API processes"])
def server(request):
    with vllm_server(
        ranks=2,
        api_processes=request.param,
        middleware=MIDDLEWARE,
        block_size=BLOCK,
        extra_args=("--enable-scale-out",),
    ) as running:
        yield SimpleNamespace(
            root_url=running.root_url, base_url=running.base_url, api_processes=request.param
        )


@pytest.fixture(scope="module")
def http(server):
    with httpx.Client(base_url=server.root_url, timeout=120, trust_env=False) as client:
        yield client


def test_every_turn_finds_its_last_prompt_cached_at_one_home_and_both_ranks_are_used(server):
    rows = asyncio.run(
        run_sessions(server.base_url, marked=True, fresh_connections=True, label="with")
    )
    homes = {
        session: {row.rank for row in rows if row.session == session}
        for session in {row.session for row in rows}
    }
    assert len(rows) == 40
    assert turns_short_of_cache(rows, BLOCK) == []
    assert [len(ranks) for ranks in homes.values()] == [1] * 4
    assert set.union(*homes.values()) == {0, 1}


def test_the_same_program_with_a_bare_client_loses_cache_it_had(server):
    # An odd number: of two ranks in rotation an even number of sessions in lockstep meets the
    # same one each round, by luck.
    rows = asyncio.run(
        run_sessions(
            server.base_url, marked=False, fresh_connections=True, sessions=5, label="without"
        )
    )
    assert len(turns_short_of_cache(rows, BLOCK)) > 10


@pytest.mark.parametrize(("route", "stream"), CALLS)
def test_every_route_obeys_the_token_over_new_connections(server, route, stream):
    url, body = server.root_url + route, {**ROUTES[route], "stream": stream}
    headers = {"X-Session-ID": SID, "X-Agent-Turn": "n=0"}
    first = httpx.post(url, json=body, headers=headers, timeout=120, trust_env=False)
    instance, _, rank = first.headers["X-Agent-Affinity"].rpartition(".")
    assert first.headers["X-Engine-Rank"] == rank
    for n, wanted in enumerate(("1", "0", "1", "0"), start=1):
        headers = {
            "X-Session-ID": SID,
            "X-Agent-Turn": f"n={n}",
            "X-Agent-Affinity": f"{instance}.{wanted}",
        }
        answer = httpx.post(url, json=body, headers=headers, timeout=120, trust_env=False)
        assert answer.status_code == 200
        assert answer.headers["X-Engine-Rank"] == wanted
        assert answer.headers["X-Agent-Served"] == f"rank={wanted}, home={wanted}, why=home"


def counted(root_url, name):
    """Return one of our counters at /metrics by its label."""
    text = httpx.get(f"{root_url}/metrics/", timeout=120, trust_env=False).text
    found = Counter()
    for label, value in re.findall(rf'^{name}\{{[^}}"]*"([^"]+)"\}} (\S+)$', text, re.MULTILINE):
        found[label] += int(float(value))
    return found


def test_what_is_placed_and_ignored_is_counted_over_all_api_processes(server):
    names = {
        "placed": "tenuto_placed_requests_total",
        "ranks": "tenuto_rank_requests_total",
        "tokens": "tenuto_rank_uncached_tokens_total",
        "ignored": "tenuto_ignored_markers_total",
    }
    before = {key: counted(server.root_url, name) for key, name in names.items()}
    sent = Counter()
    for n in range(12):
        headers = {"X-Session-ID": f"counted-{n:08}", "X-Agent-Turn": "n=0, attempt=x"}
        body = {"model": "tiny", "prompt": f"{n:02}" * 160, "max_tokens": 2}
        # A new connection each time, so that each API process gets some.
        answer = httpx.post(
            f"{server.root_url}/v1/completions",
            json=body,
            headers=headers,
            timeout=120,
            trust_env=False,
        )
        sent[answer.headers["X-Engine-Rank"]] += 1
    more = {key: counted(server.root_url, name) - before[key] for key, name in names.items()}
    assert more["placed"] == {"first": 12}
    assert more["ranks"] == sent
    assert more["tokens"] == {rank: 320 * count for rank, count in sent.items()}
    assert more["ignored"] == {"turn.attempt": 12}


HOSTILE = {
    "a 9 kB session": [(b"X-Session-ID", b"s" * 9000)],
    "a session that is not UTF-8": [(b"X-Session-ID", b"\xff\xfe\xfa-session")],
    "two ranks": [(b"X-data-parallel-rank", b"0"), (b"X-data-parallel-rank", b"7")],
    "a full-width rank": [(b"X-data-parallel-rank", b"\xef\xbc\x97")],
    "a signed rank": [(b"X-data-parallel-rank", b"+1")],
    "a rank out of range": [(b"X-data-parallel-rank", b"99")],
    "a token without a session": [(b"X-Agent-Affinity", b"abc.1")],
    "a turn that is no dictionary": [(b"X-Agent-Turn", b"((((")],
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_headers_are_answered_as_if_they_were_not_there(http, name, stream):
    body = {**CHAT, "temperature": 0, "stream": stream}
    plain = http.post("/v1/chat/completions", json=body)
    hostile = http.post("/v1/chat/completions", json=body, headers=HOSTILE[name])
    assert (hostile.status_code, hostile.headers.keys()) == (200, plain.headers.keys())
    assert texts(hostile) == texts(plain)
    assert "x-agent-served" not in hostile.headers


def texts(answer):
    """Return what the model said, whole or streamed, without ids and times."""
    if answer.headers["content-type"].startswith("application/json"):
        return answer.json()["choices"][0]["message"]["content"]
    lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
    # A busy server may put two tokens into one event.
    return "".join(json.loads(line)["choices"][0]["delta"].get("content") or "" for line in lines)


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("another-server.1", "first"),
        ("{instance}.2", "first"),
        ("{instance}.x", "hash"),
        ("x" * 200, "hash"),
    ],
)
def test_a_token_that_names_no_rank_of_this_server_is_ignored(http, token, why):
    first = http.post("/v1/chat/completions", json=CHAT, headers={"X-Session-ID": SID})
    instance = first.headers["X-Agent-Affinity"].rpartition(".")[0]
    headers = {
        "X-Session-ID": f"session-{why}-{len(token):04}",
        "X-Agent-Turn": "n=3",
        "X-Agent-Affinity": token.format(instance=instance),
    }
    answer = http.post("/v1/chat/completions", json=CHAT, headers=headers)
    assert answer.status_code == 200
    assert answer.headers["X-Agent-Served"].endswith(f"why={why}")


def test_an_id_with_a_line_break_is_two_headers_and_harms_nothing(server):
    url = urlsplit(server.root_url)
    payload = json.dumps(CHAT).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Connection: close\r\nContent-Length: {len(payload)}\r\n"
        f"X-Session-ID: {SID}\r\nX-data-parallel-rank: 9\r\n\r\n"
    )
    with socket.create_connection((url.hostname, url.port), timeout=60) as connection:
        connection.sendall(head.encode() + payload)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200")


def test_clients_that_hang_up_mid_stream_leave_no_load_behind(server, http):
    body = {**CHAT, "stream": True, "max_tokens": 12000, "ignore_eos": True}
    for n in range(6):
        headers = {"X-Session-ID": SID, "X-Agent-Turn": f"n={n}"}
        with httpx.stream(
            "POST",
            f"{server.root_url}/v1/chat/completions",
            json=body,
            headers=headers,
            timeout=120,
            trust_env=False,
        ) as answer:
            chunks = answer.iter_raw()
            next(chunks)
    looks = (idle(server, http) for _ in range(500))
    assert any(looks)


def idle(server, http):
    """Tell whether no API process of ours and no engine of vLLM's counts a request."""
    in_flight = {}
    # A new connection goes to either process, so ask until each has answered.
    while len(in_flight) < server.api_processes:
        status = httpx.get(f"{server.root_url}/tenuto/state", trust_env=False).json()
        in_flight[status["process"]] = status["in_flight"]
    return (
        set(map(tuple, in_flight.values())) == {(0, 0)}
        and by_engine(http, "num_requests_running").total() == 0
        and by_engine(http, "num_requests_waiting").total() == 0
    )


def test_first_turns_sent_at_once_use_both_ranks(server):
    async def first(client, i):
        headers = {"X-Session-ID": f"{SID}{i}", "X-Agent-Turn": "n=0"}
        return await client.post("/v1/chat/completions", json=CHAT, headers=headers)

    async def burst():
        async with httpx.AsyncClient(
            base_url=server.root_url, timeout=120, trust_env=False
        ) as client:
            return await asyncio.gather(*(first(client, i) for i in range(12)))

    ranks = [answer.headers["X-Engine-Rank"] for answer in asyncio.run(burst())]
    assert 4 <= ranks.count("0") <= 8


def test_the_status_route_tells_the_ranks_of_the_running_engine(http):
    status = http.get("/tenuto/state").json()
    assert (status["protocol"], status["ranks"]) == (1, 2)
