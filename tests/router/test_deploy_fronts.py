"""Each configuration of examples/deploy that runs here, run: where calls go and what arrives."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from openai import OpenAI

import tenuto
from examples.deploy.fronts import front
from tests.loopback import Recorder, serving

# An odd number, so that taking turns would not keep them apart.
SESSIONS, TURNS = 40, 3
FRONTS = (
    "vllm-router/consistent-hash.sh",
    "vllm-router/sticky-least-loaded.sh",
    "vllm-router/ranks.sh",
    "nginx/by-session.conf",
    "nginx/by-token.conf",
    "envoy/by-session.yaml",
)
PROXIES = tuple(name for name in FRONTS if not name.startswith("vllm-router"))


@dataclass(frozen=True)
class Running:
    """A front and the recording servers behind it, whose tokens name them."""

    name: str
    url: str
    servers: dict[str, Recorder]

    @contextlib.contextmanager
    def client(self, *, marked: bool = True) -> Generator[OpenAI]:
        with OpenAI(base_url=f"{self.url}/v1", api_key="k", max_retries=0) as client:
            dialect = "vllm-router" if self.name.startswith("vllm-router") else "vllm"
            yield tenuto.wrap(client, dialect=dialect) if marked else client

    def arrived(self) -> list[tuple[str, Any]]:
        """Return the model calls, as (server, call)."""
        return [
            (name, call)
            for name, server in self.servers.items()
            for call in server.arrived
            if isinstance(call.body, dict)
        ]


@contextlib.contextmanager
def recording(name: str) -> Generator[Running]:
    servers = {
        endpoint: Recorder(answer_headers={"X-Agent-Affinity": f"{endpoint}-0123456789abcdef.0"})
        for endpoint in "ab"
    }
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(serving(app)) for app in servers.values()]
        url = stack.enter_context(front(name, urls, env={"RANKS": "2"})).root_url
        yield Running(name, url, servers)


@pytest.fixture(scope="module", params=FRONTS)
def started(request: pytest.FixtureRequest) -> Iterator[Running]:
    with recording(request.param) as running:
        yield running


@pytest.fixture
def running(started: Running) -> Running:
    for server in started.servers.values():
        server.arrived.clear()
    return started


def chat(client: OpenAI, text: str, **more: Any) -> Any:
    messages: Any = [{"role": "user", "content": text}]
    return client.chat.completions.create(model="m", messages=messages, **more)


def test_every_turn_of_a_session_reaches_one_server_and_both_have_sessions(
    running: Running, prompt: str
) -> None:
    with running.client() as client:
        for turn in range(TURNS):
            for number in range(SESSIONS):
                with tenuto.run(f"{prompt} {number}"):
                    chat(client, f"{number} {turn}")
    homes: dict[str, list[str]] = {}
    for name, call in running.arrived():
        homes.setdefault(call.headers["x-session-id"], []).append(name)
    assert len(homes) == SESSIONS
    assert all(len(names) == TURNS and len(set(names)) == 1 for names in homes.values())
    assert {names[0] for names in homes.values()} == {"a", "b"}


def test_the_markers_arrive_and_the_token_comes_back(running: Running, prompt: str) -> None:
    with running.client() as client, tenuto.run(prompt) as run:
        for turn in range(2):
            chat(client, f"{prompt} {turn}", extra_headers={"X-Request-Id": f"mine-{turn}"})
    [(name, first), (_, second)] = running.arrived()
    assert first.headers["x-session-id"] == run.session_id
    assert first.headers["x-agent-run-id"] == run.run_id
    assert second.turn["n"] == "1"
    assert second.headers["x-request-id"] == "mine-1"
    assert second.headers["x-agent-affinity"] == f"{name}-0123456789abcdef.0"


def test_calls_of_no_session_are_spread_by_proxies_and_heaped_by_vllm_router(
    running: Running,
) -> None:
    with running.client(marked=False) as client:
        for number in range(SESSIONS):
            chat(client, f"unmarked {number}")
    counts = {name: 0 for name in running.servers}
    for name, _ in running.arrived():
        counts[name] += 1
    assert (min(counts.values()) > 0) == (running.name in PROXIES)


def test_a_clients_own_rank_stops_at_a_proxy(running: Running, prompt: str) -> None:
    with running.client() as client, tenuto.run(prompt):
        chat(client, prompt, extra_headers={"X-data-parallel-rank": "7"})
    [(_, call)] = running.arrived()
    # vllm-router leaves it there; the extension strips it.
    assert ("x-data-parallel-rank" in call.headers) == (running.name not in PROXIES)


def test_a_prompt_of_several_megabytes_arrives_whole(running: Running, prompt: str) -> None:
    text = f"{prompt} " + "x" * 5_000_000
    with running.client() as client, tenuto.run(prompt):
        chat(client, text)
    [(_, call)] = running.arrived()
    assert call.body["messages"][0]["content"] == text


@pytest.mark.parametrize("name", FRONTS)
def test_a_stream_arrives_as_it_is_written(name: str) -> None:
    seen = threading.Event()

    async def server(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["method"] == "POST":
            await send({"type": "http.response.body", "body": b"data: one\n\n", "more_body": True})
            # The thread has no other request, and the test fails where this is not told.
            assert seen.wait(20)
        await send({"type": "http.response.body", "body": b"data: two\n\n"})

    with serving(server) as a, serving(server) as b, front(name, [a, b], env={"RANKS": "2"}) as up:
        body = {"model": "m", "messages": [], "stream": True}
        with httpx.stream("POST", f"{up.base_url}/chat/completions", json=body) as answer:
            chunks = answer.iter_bytes()
            assert next(chunks) == b"data: one\n\n"
            seen.set()
            assert b"".join(chunks) == b"data: two\n\n"


def test_the_ranks_script_places_a_session_on_one_rank_and_uses_all(prompt: str) -> None:
    with recording("vllm-router/ranks.sh") as running:
        with running.client() as client:
            for turn in range(TURNS):
                for number in range(SESSIONS):
                    with tenuto.run(f"{prompt} {number}"):
                        chat(client, f"{number} {turn}")
        places: dict[str, set[tuple[str, str]]] = {}
        for name, call in running.arrived():
            place = name, call.headers["x-data-parallel-rank"]
            places.setdefault(call.headers["x-session-id"], set()).add(place)
        assert all(len(found) == 1 for found in places.values())
        assert len(set.union(*places.values())) == 4
