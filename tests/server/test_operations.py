"""What operators see of a server and may change of it, on the embedded engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

import tenuto_vllm
from tenuto_vllm.config import Settings
from tenuto_vllm.embedded import EngineSettings, serve
from tests.loopback import DEFAULT_SIGNALS, eventually

KEY = "a-key-of-the-operators"
ADMIN = {"Authorization": f"Bearer {KEY}"}
DRAIN, RESTORE, STATE = "/tenuto/ranks/drain", "/tenuto/ranks/restore", "/tenuto/state"
SENTENCE = "tenuto: TENUTO_SESSIONS is 'many'; it must be a whole number from 1 to 999999999."


@contextlib.contextmanager
def engine(folder: Path, *, key: str = KEY, **size: Any) -> Iterator[httpx.Client]:
    ours = Settings(admin_key=key, state_dir=folder)
    extension = partial(tenuto_vllm.TurnMiddleware, settings=ours)
    settings = EngineSettings(**{"ranks": 2, "prefill_tokens_per_s": float("inf")} | size)
    with serve(settings, [extension]) as url, httpx.Client(base_url=url, timeout=10) as http:
        yield http


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def http(folder: Path) -> Iterator[httpx.Client]:
    with engine(folder) as client:
        yield client


def turn(http: httpx.Client, session: str, n: int = 0, token: str = "") -> httpx.Headers:
    headers = {"X-Session-ID": session, "X-Agent-Turn": f"n={n}"}
    if token:
        headers["X-Agent-Affinity"] = token
    body = {"model": "tiny", "prompt": session * 40, "max_tokens": 2}
    answer = http.post("/v1/completions", json=body, headers=headers)
    answer.raise_for_status()
    return answer.headers


def state(http: httpx.Client) -> dict[str, Any]:
    return http.get(STATE).json()


def test_the_state_tells_of_each_rank_and_names_no_session(http: httpx.Client) -> None:
    for n in range(4):
        turn(http, f"session-{n}")
    assert eventually(lambda: state(http)["in_flight"] == [0, 0])
    answer = http.get(STATE)
    told = answer.json()
    assert "session-" not in answer.text
    assert KEY not in answer.text
    assert (told["protocol"], told["process"], told["ranks"]) == (1, os.getpid(), 2)
    assert told["instance"] == turn(http, "session-9")["X-Agent-Affinity"].split(".")[0]
    assert (told["sessions"], told["homes"], told["drained"]) == (4, [2, 2], [])
    assert (told["pending"], told["load"]) == ([0, 0], [0.0, 0.0])
    assert told["home_tokens"] == [2 * 40 * len("session-0")] * 2
    assert told["placed"] == {"first": 4}
    assert told["settings"] | {"sessions": 32768, "admin_key": True} == told["settings"]


def test_the_load_is_counted_while_a_request_runs(folder: Path) -> None:
    body = {"model": "tiny", "prompt": "x" * 200, "max_tokens": 4000, "stream": True}
    headers = {"X-Session-ID": "session-a", "X-Agent-Turn": "n=0"}
    with (
        engine(folder, decode_tokens_per_s=50) as http,
        http.stream("POST", "/v1/completions", json=body, headers=headers) as answer,
    ):
        rank = int(answer.headers["X-Engine-Rank"])
        told = httpx.get(f"{http.base_url}{STATE}").json()
        assert (told["in_flight"][rank], told["load"][rank]) == (1, 1.0)


def test_the_sessions_are_listed_for_the_key_alone(http: httpx.Client) -> None:
    turn(http, "session-a", 3)
    rank = int(turn(http, "session-b", 4)["X-Engine-Rank"])
    listed = http.get(STATE, params={"sessions": 1}, headers=ADMIN).json()["listed"]
    assert [one["session"] for one in listed] == ["session-b", "session-a"]
    tokens = 40 * len("session-b")
    last = {"session": "session-b", "rank": rank, "tokens": tokens, "turn": 4, "warm": True}
    assert listed[0] == last
    assert "listed" not in http.get(STATE, params={"sessions": 0}).json()


def test_no_more_than_a_thousand_sessions_are_listed(http: httpx.Client) -> None:
    for n in range(1_002):
        turn(http, f"session-{n:04}")
    listed = http.get(STATE, params={"sessions": 1}, headers=ADMIN).json()["listed"]
    assert [one["session"] for one in listed] == [f"session-{n:04}" for n in range(1_001, 1, -1)]


WRONG = ["", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", f"Basic {KEY}", KEY, "Bearer", "Bearer \xe9"]


@pytest.mark.parametrize("given", WRONG)
def test_another_key_than_the_servers_is_refused_alike_everywhere(
    http: httpx.Client, given: str
) -> None:
    headers = {"Authorization": given.encode("latin-1")} if given else {}
    turn(http, "session-a")
    answers = [
        http.get(STATE, params={"sessions": 1}, headers=headers),
        http.post(DRAIN, json={"rank": 1}, headers=headers),
        http.post(RESTORE, content=b"{", headers=headers),
    ]
    assert {answer.status_code for answer in answers} == {401}
    assert {answer.headers["WWW-Authenticate"] for answer in answers} == {"Bearer"}
    assert len({answer.text for answer in answers}) == 1
    assert "session-a" not in answers[0].text
    assert state(http)["drained"] == []


def test_without_a_key_nobody_is_let_in_and_the_answer_says_how(folder: Path) -> None:
    with engine(folder, key="") as http:
        for headers in ({}, ADMIN, {"Authorization": "Bearer"}):
            listed = http.get(STATE, params={"sessions": 1}, headers=headers)
            drained = http.post(DRAIN, json={"rank": 1}, headers=headers)
            assert (listed.status_code, drained.status_code) == (403, 403)
            assert "TENUTO_ADMIN_KEY" in drained.json()["error"]["message"]
        assert state(http)["settings"]["admin_key"] is False


def test_a_drained_rank_is_left_by_all_sessions_until_it_is_restored(http: httpx.Client) -> None:
    tokens = {f"session-{n}": turn(http, f"session-{n}") for n in range(6)}
    assert {one["X-Engine-Rank"] for one in tokens.values()} == {"0", "1"}
    answer = http.post(DRAIN, json={"rank": 1}, headers=ADMIN)
    assert (answer.status_code, answer.json()) == (200, {"ranks": 2, "drained": [1]})
    assert state(http)["drained"] == [1]
    for n, (session, last) in enumerate(tokens.items()):
        assert turn(http, session, 1, last["X-Agent-Affinity"])["X-Engine-Rank"] == "0"
        assert turn(http, f"another-{n}")["X-Engine-Rank"] == "0"
    answer = http.post(RESTORE, json={"rank": 1}, headers=ADMIN)
    assert (answer.status_code, answer.json()) == (200, {"ranks": 2, "drained": []})
    assert {turn(http, f"third-{n}")["X-Engine-Rank"] for n in range(6)} == {"0", "1"}


def test_the_same_order_again_changes_nothing(http: httpx.Client) -> None:
    for path, drained in ((RESTORE, []), (DRAIN, [0]), (DRAIN, [0]), (RESTORE, []), (RESTORE, [])):
        answer = http.post(path, json={"rank": 0}, headers=ADMIN)
        assert (answer.status_code, answer.json()["drained"]) == (200, drained)


def test_the_last_rank_is_not_drained(folder: Path) -> None:
    with engine(folder, ranks=3) as http:
        for rank in (2, 0):
            assert http.post(DRAIN, json={"rank": rank}, headers=ADMIN).status_code == 200
        answer = http.post(DRAIN, json={"rank": 1}, headers=ADMIN)
        assert answer.status_code == 409
        assert "Rank 1 is the last one" in answer.json()["error"]["message"]
        assert state(http)["drained"] == [0, 2]
    with engine(folder, ranks=1) as http:
        assert http.post(DRAIN, json={"rank": 0}, headers=ADMIN).status_code == 409


@pytest.mark.parametrize("path", [DRAIN, RESTORE])
def test_an_order_of_another_shape_is_refused(http: httpx.Client, path: str) -> None:
    for body in (b"", b"1", b"[1]", b'{"rank": "1"}', b'{"rank": true}', b'{"rank": -1}', b"\xff"):
        answer = http.post(path, content=body, headers=ADMIN)
        assert answer.status_code == 400
        assert '{"rank": 1}' in answer.json()["error"]["message"]
    deep = b"[" * 60_000
    assert http.post(path, content=deep, headers=ADMIN).status_code == 400
    answer = http.post(path, json={"rank": 2}, headers=ADMIN)
    assert answer.status_code == 400
    assert "There is no rank 2" in answer.json()["error"]["message"]
    assert http.post(path, content=b" " * 70_000, headers=ADMIN).status_code == 413


@pytest.mark.parametrize("path", [STATE, DRAIN, RESTORE])
def test_another_method_is_not_allowed(http: httpx.Client, path: str) -> None:
    allowed = "GET" if path == STATE else "POST"
    for method in {"GET", "POST", "PUT", "DELETE"} - {allowed}:
        answer = http.request(method, path, headers=ADMIN)
        assert (answer.status_code, answer.headers["Allow"]) == (405, allowed)


def test_a_server_without_an_engine_tells_so_and_drains_nothing(folder: Path) -> None:
    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        await receive()

    async def ask(path: str, method: str) -> list[Any]:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b'{"rank": 0}'}

        async def send(message: Any) -> None:
            sent.append(message)

        settings = Settings(admin_key=KEY, state_dir=folder)
        middleware = tenuto_vllm.TurnMiddleware(nothing, settings=settings)
        headers = [(b"authorization", f"bearer {KEY}".encode())]
        scope = {"type": "http", "method": method, "path": path, "headers": headers}
        await middleware(scope, receive, send)
        return sent

    start, body = asyncio.run(ask(STATE, "GET"))
    assert (start["status"], json.loads(body["body"])["homes"]) == (200, [])
    start, _ = asyncio.run(ask(DRAIN, "POST"))
    assert start["status"] == 400


UVICORN = """
import sys, uvicorn, tenuto_vllm
from starlette.applications import Starlette
app = Starlette()
app.add_middleware(tenuto_vllm.TurnMiddleware)
uvicorn.run(app, host="127.0.0.1", port=0, lifespan=sys.argv[1])
"""


def ends(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DEFAULT_SIGNALS, sys.executable, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **variables},
    )


@pytest.mark.parametrize("lifespan", ["auto", "on"])
def test_a_setting_that_cannot_be_used_ends_the_server_as_it_starts(lifespan: str) -> None:
    done = ends("-c", UVICORN, lifespan, TENUTO_SESSIONS="many")
    assert done.returncode not in {0, -signal.SIGTERM}
    assert SENTENCE in done.stderr
    assert "Traceback" not in done.stderr


def test_the_embedded_engine_ends_by_it_too() -> None:
    command = ("-m", "tenuto_vllm.embedded", "--port", "0", "--middleware")
    done = ends(*command, "tenuto_vllm.TurnMiddleware", TENUTO_SESSIONS="many")
    assert done.returncode != 0
    assert SENTENCE in done.stderr
    assert re.search("Traceback|listening", done.stderr + done.stdout) is None


@pytest.mark.anyio
async def test_a_host_without_a_lifespan_goes_on_with_the_defaults_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    monkeypatch.setenv("TENUTO_SESSIONS", "many")
    middleware = tenuto_vllm.TurnMiddleware(app)
    scope = {"type": "http", "method": "GET", "path": "/health", "headers": []}
    await middleware(scope, receive, send)
    assert sent[0]["status"] == 204
    assert SENTENCE in caplog.text
