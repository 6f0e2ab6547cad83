"""The middleware in front of the embedded engine, over real sockets."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import json
import socket
from collections.abc import Iterator
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest

import tenuto
import tenuto_vllm
from tenuto_vllm._wire import parse_affinity
from tenuto_vllm.config import Settings
from tenuto_vllm.embedded import Engine, EngineSettings, serve
from tenuto_vllm.engine.seam import SCOPE_KEY
from tenuto_vllm.placement import by_hash
from tests.loopback import eventually

BODY = {"model": "tiny", "messages": [{"role": "user", "content": "x" * 200}], "max_tokens": 4}
ROUTES = {
    "/v1/chat/completions": BODY,
    "/v1/completions": {"model": "tiny", "prompt": "x" * 200, "max_tokens": 4},
    "/v1/responses": {"model": "tiny", "input": "x" * 200, "max_output_tokens": 4},
}
SID = "0123456789abcdef"


@contextlib.contextmanager
def engine(ranks: int = 2, **settings: Any) -> Iterator[httpx.Client]:
    size = EngineSettings(ranks=ranks, prefill_tokens_per_s=float("inf"), **settings)
    with (
        serve(size, [tenuto_vllm.TurnMiddleware]) as url,
        httpx.Client(base_url=url, timeout=10) as http,
    ):
        yield http


def status(http: httpx.Client) -> dict[str, Any]:
    return http.get("/tenuto/state").json()


def idle(http: httpx.Client) -> bool:
    engines = http.get("/stats").json()["ranks"]
    return sum(status(http)["in_flight"]) == 0 and all(rank["in_flight"] == 0 for rank in engines)


def raw_request(
    http: httpx.Client, *headers: bytes, body: Any = BODY
) -> tuple[int, dict[str, str], Any]:
    """Send exactly these header lines, which no HTTP client library would."""
    url = urlsplit(str(http.base_url))
    payload = json.dumps(body).encode()
    lines = [
        b"POST /v1/chat/completions HTTP/1.1",
        b"Host: x",
        b"Content-Type: application/json",
        b"Connection: close",
        b"Content-Length: %d" % len(payload),
        *headers,
    ]
    with socket.create_connection((url.hostname, url.port), timeout=10) as connection:
        connection.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + payload)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    head, _, rest = answer.partition(b"\r\n\r\n")
    first, *given = head.decode("latin-1").split("\r\n")
    said = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in given)
    }
    return int(first.split()[1]), said, json.loads(rest)


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_sends_a_session_home_and_says_where_it_went(route: str) -> None:
    with engine() as http:
        token, seen = None, set()
        for n in range(4):
            headers = {"X-Session-ID": SID, "X-Agent-Turn": f"n={n}"}
            answer = http.post(
                route,
                json=ROUTES[route],
                headers=headers | ({"X-Agent-Affinity": token} if token else {}),
            )
            assert answer.status_code == 200
            token = answer.headers["X-Agent-Affinity"]
            rank = answer.headers["X-Engine-Rank"]
            why = "home" if n else "first"
            assert answer.headers["X-Agent-Served"] == f"rank={rank}, home={rank}, why={why}"
            seen.add(rank)
        assert len(seen) == 1


def test_a_session_whose_client_echoes_nothing_stays_on_one_rank_by_hash() -> None:
    with engine(ranks=4) as http:
        answers = [
            http.post("/v1/chat/completions", json=BODY, headers={"X-Session-ID": SID})
            for _ in range(6)
        ]
        assert len({answer.headers["X-Engine-Rank"] for answer in answers}) == 1
        assert {answer.headers["X-Agent-Served"].split("why=")[1] for answer in answers} == {"hash"}


def test_first_turns_sent_at_once_are_spread_over_the_ranks() -> None:
    slow = EngineSettings(ranks=4, prefill_tokens_per_s=2000)
    with serve(slow, [tenuto_vllm.TurnMiddleware]) as url, httpx.Client(base_url=url) as http:

        def first(i: int) -> str:
            headers = {"X-Session-ID": f"{SID}{i}", "X-Agent-Turn": "n=0"}
            return http.post("/v1/chat/completions", json=BODY, headers=headers).headers[
                "X-Engine-Rank"
            ]

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            ranks = list(pool.map(first, range(8)))
    assert sorted(ranks) == sorted("0123" * 2)


def test_a_request_without_a_session_is_answered_as_by_the_stock_server() -> None:
    with engine() as http, serve(EngineSettings(prefill_tokens_per_s=float("inf"))) as stock:
        ours = http.post("/v1/chat/completions", json=BODY)
        theirs = httpx.post(f"{stock}/v1/chat/completions", json=BODY)
        assert ours.headers.keys() == theirs.headers.keys()
        assert ours.json()["choices"] == theirs.json()["choices"]
        for path in ("/health", "/v1/models", "/nowhere"):
            assert http.get(path).status_code == httpx.get(stock + path).status_code


HOSTILE = {
    "a 9 kB session": [b"X-Session-ID: " + b"s" * 9000],
    "a session that is not UTF-8": [b"X-Session-ID: \xff\xfe\xfa-session"],
    "a session of 65 characters": [b"X-Session-ID: " + b"s" * 65],
    "a session that ends like an attempt": [b"X-Session-ID: session-one_t12"],
    "an empty session": [b"X-Session-ID: "],
    "two rank headers": [b"X-data-parallel-rank: 0", b"X-data-parallel-rank: 7"],
    "a full-width rank": [b"X-data-parallel-rank: \xef\xbc\x97"],
    "a rank with a sign": [b"X-data-parallel-rank: +1"],
    "a rank out of range": [b"X-data-parallel-rank: 99"],
    "a token without a session": [b"X-Agent-Affinity: abc.1"],
    "a turn that is no dictionary": [b"X-Agent-Turn: \x01(((("],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_headers_are_answered_as_if_they_were_not_there(name: str) -> None:
    with engine() as http:
        plain = raw_request(http)
        status_code, headers, body = raw_request(http, *HOSTILE[name])
        assert (status_code, headers.keys()) == (plain[0], plain[1].keys())
        assert body["choices"] == plain[2]["choices"]
        assert eventually(lambda: idle(http))


TOKENS = [
    b"not-this-server.0",
    b"{instance}.2",
    b"{instance}.-1",
    b"{instance}.\xef\xbc\x91",
    b"x" * 200,
]


@pytest.mark.parametrize("token", TOKENS)
def test_a_token_of_another_instance_or_out_of_range_is_ignored_and_a_home_chosen_anew(
    token: bytes,
) -> None:
    with engine() as http:
        sid = b"X-Session-ID: " + SID.encode()
        instance = raw_request(http, sid)[1]["x-agent-affinity"].rpartition(".")[0]
        sent = b"X-Agent-Affinity: " + token.replace(b"{instance}", instance.encode())
        other = b"X-Session-ID: another-" + SID.encode()
        status_code, headers, _ = raw_request(http, other, b"X-Agent-Turn: n=3", sent)
        assert status_code == 200
        is_one = parse_affinity(sent.partition(b": ")[2].decode("latin-1")) is not None
        assert headers["x-agent-served"].endswith("why=first" if is_one else "why=hash")
        assert eventually(lambda: idle(http))


def test_an_id_with_a_line_break_never_reaches_the_answer() -> None:
    with engine() as http:
        evil = b"X-Session-ID: " + SID.encode() + b"\r\nX-Agent-Affinity: evil\tX-Evil: 1"
        status_code, headers, _ = raw_request(http, evil)
        assert status_code == 200
        assert not any("evil" in name or "evil" in value for name, value in headers.items())


def test_an_answer_with_an_error_names_no_home_and_counts_for_no_rank() -> None:
    with engine() as http:
        for i in range(4):
            headers = {"X-Session-ID": f"{SID}{i}", "X-Agent-Turn": "n=0"}
            refused = http.post("/v1/chat/completions", json={"messages": 1}, headers=headers)
            assert refused.status_code == 400
            assert "X-Agent-Served" not in refused.headers
        ranks = [
            http.post(
                "/v1/chat/completions",
                json=BODY,
                headers={"X-Session-ID": SID, "X-Agent-Turn": f"n=0, attempt={attempt}"},
            ).headers["X-Engine-Rank"]
            for attempt in (0,)
        ]
        assert ranks == [str(by_hash(SID, 2))]


def test_every_dropped_marker_is_counted_by_kind() -> None:
    with engine() as http:
        headers = {"X-Session-ID": "no", "X-Agent-Turn": "n=-1, phase=lunch", "X-Agent-Run-ID": "-"}
        http.post("/v1/chat/completions", json=BODY, headers=headers)
        assert status(http)["dropped"] == {"session": 1, "run": 1, "turn.n": 1, "turn.phase": 1}


def test_a_client_that_disconnects_mid_stream_leaves_no_load_behind() -> None:
    with engine(decode_tokens_per_s=50) as http:
        body = {**BODY, "stream": True, "max_tokens": 4000}
        headers = {"X-Session-ID": SID, "X-Agent-Turn": "n=0"}
        with http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
            chunks = answer.iter_raw()
            next(chunks)
            assert sum(status(http)["in_flight"]) == 1
        assert eventually(lambda: idle(http))


def test_a_streamed_answer_arrives_piece_by_piece() -> None:
    with engine(decode_tokens_per_s=200) as http:
        body = {**BODY, "stream": True, "max_tokens": 60}
        headers = {"X-Session-ID": SID}
        with http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
            assert answer.headers["X-Agent-Served"].endswith("why=hash")
            pieces = list(answer.iter_raw())
        assert len(pieces) > 10
        assert b"".join(pieces).endswith(b"data: [DONE]\n\n")


def test_a_trusted_rank_decides_and_an_unchecked_one_is_stripped_all_the_same() -> None:
    trusting = partial(tenuto_vllm.TurnMiddleware, settings=Settings(trust_rank=True))
    with serve(EngineSettings(ranks=2), [trusting]) as url, httpx.Client(base_url=url) as http:
        for rank in ("0", "1"):
            _, headers, _ = raw_request(http, b"X-data-parallel-rank: " + rank.encode())
            assert headers["x-engine-rank"] == rank
        for bad in (b"2", b"+1", b"\xef\xbc\x91"):
            assert raw_request(http, b"X-data-parallel-rank: " + bad)[0] == 200


def test_ten_thousand_sessions_leave_no_more_than_a_thousand() -> None:
    held = tenuto_vllm.TurnMiddleware(Instant(ranks=8), settings=Settings(sessions=50))
    asyncio.run(visit(held, range(1_000)))
    before = reachable(held)
    asyncio.run(visit(held, range(1_000, 10_000)))
    # 9,000 sessions; a float or two come and go.
    assert reachable(held) < before + 100


class Instant:
    """An app that answers at once, with an engine of `ranks` idle ranks behind it."""

    def __init__(self, ranks: int) -> None:
        self.state = SimpleNamespace(tenuto_view=Engine(EngineSettings(ranks=ranks)))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        scope[SCOPE_KEY].prompt_tokens = 1_000
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


async def visit(middleware: Any, sessions: range) -> None:
    async def nothing(*_: Any) -> None:
        return None

    for i in sessions:
        headers = [(b"x-session-id", b"session-%08d" % i), (b"x-agent-turn", b"n=0")]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/chat/completions",
            "headers": headers,
            "app": middleware._app,
        }
        await middleware(scope, nothing, nothing)


def reachable(root: object) -> int:
    """Count the objects that a middleware keeps alive, containers and all."""
    seen: dict[int, object] = {}
    todo: list[object] = [vars(root)]
    while todo:
        one = todo.pop()
        if id(one) not in seen and not isinstance(one, type | ModuleType):
            seen[id(one)] = one
            todo.extend(gc.get_referents(one))
    return len(seen)


@pytest.mark.anyio
async def test_the_wrapped_client_keeps_four_interleaved_sessions_at_home() -> None:
    size = EngineSettings(ranks=2, prefill_tokens_per_s=float("inf"))
    ranks: dict[str, list[str]] = {}

    async def session(run: tenuto.Run, name: str, client: Any) -> None:
        messages: list[Any] = [{"role": "system", "content": f"{name} " * 40}]
        last = 0
        for turn in range(10):
            messages.append({"role": "user", "content": f"turn {turn} " * 8})
            with run.agent(name):
                raw = await client.chat.completions.with_raw_response.create(
                    model="tiny", messages=messages, max_tokens=8
                )
            answer = raw.parse()
            ranks.setdefault(name, []).append(raw.headers["X-Engine-Rank"])
            cached = answer.usage.prompt_tokens_details.cached_tokens
            assert cached >= last // 16 * 16
            last = answer.usage.prompt_tokens
            messages.append({"role": "assistant", "content": answer.choices[0].message.content})

    with serve(size, [tenuto_vllm.TurnMiddleware]) as url:
        async with tenuto.wrap(openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k")) as client:
            with tenuto.run() as run:
                await asyncio.gather(*(session(run, f"agent-{i}", client) for i in range(4)))
    assert all(len(set(seen)) == 1 for seen in ranks.values())
    assert {seen[0] for seen in ranks.values()} == {"0", "1"}
