"""The dry run, sessions told by content, and caches that are emptied, on a real vLLM."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
import pytest

from examples.demo.engines import vllm_server

from .conftest import OBSERVER
from .sessions import run_sessions, turns_short_of_cache

BLOCK = 32
MIDDLEWARE = ("tenuto_vllm.TurnMiddleware", OBSERVER)


def test_a_dry_run_changes_nothing_and_tells_what_stock_placement_loses():
    with vllm_server(
        ranks=2, middleware=MIDDLEWARE, block_size=BLOCK, env={"TENUTO_SHADOW": "1"}
    ) as server:
        rows = asyncio.run(
            run_sessions(server.base_url, marked=True, fresh_connections=True, label="dry")
        )
        told = httpx.get(f"{server.root_url}/tenuto/state", trust_env=False).json()["shadow"]
        asked = httpx.post(
            f"{server.base_url}/completions",
            json={"model": "tiny", "prompt": "x", "max_tokens": 1},
            headers={"X-Session-ID": "some-session", "X-data-parallel-rank": "1"},
            timeout=60,
            trust_env=False,
        )
    assert turns_short_of_cache(rows, BLOCK) != []
    assert told["requests"] == len(rows) == 40
    computed = sum(row.prompt_tokens - row.cached_tokens for row in rows)
    # vLLM caches whole blocks; what an answer adds to them is not counted.
    assert abs(told["stock_uncached_tokens"] - computed) <= 2 * BLOCK * len(rows)
    last = {row.session: row.prompt_tokens for row in rows if row.turn == 9}
    assert told["uncached_tokens"] == sum(last.values())
    assert asked.headers["X-Engine-Rank"] == "1"
    assert "X-Agent-Served" not in asked.headers


@pytest.fixture(scope="module")
def server():
    """Two API processes that read content, with vLLM's routes for development."""
    env = {"TENUTO_CONTENT": "1", "VLLM_SERVER_DEV_MODE": "1"}
    with vllm_server(
        ranks=2, api_processes=2, middleware=MIDDLEWARE, block_size=BLOCK, env=env
    ) as running:
        yield running


def ask(server, prompt, **headers):
    answer = httpx.post(
        f"{server.base_url}/completions",
        json={"model": "tiny", "prompt": prompt, "max_tokens": 2},
        headers=headers,
        timeout=120,
        trust_env=False,
    )
    answer.raise_for_status()
    return answer


def test_sessions_without_any_marker_stay_home_through_two_api_processes(server):
    system = "You are one agent of a fleet, and all of them begin alike. " * 30
    # Each process learns by itself what the fleet shares.
    for n in range(40):
        ask(server, system + f"to warm up, number {n}. " * 10)
    homes = Counter()
    for n in range(8):
        prompt = system + f"The task of agent {n} is to find bug {n}. " * 10
        ranks, before = [], 0
        for turn in range(4):
            answer = ask(server, prompt)
            ranks.append(answer.headers["X-Engine-Rank"])
            found = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert found >= before // BLOCK * BLOCK
            before = len(prompt)
            prompt += f" The tool says {turn} to agent {n}." * 10
        assert len(set(ranks)) == 1
        homes[ranks[0]] += 1
    assert set(homes) == {"0", "1"}


def turn(server, n, token=None):
    headers = {"X-Session-ID": "session-to-be-reset", "X-Agent-Turn": f"n={n}"}
    if token is not None:
        headers["X-Agent-Affinity"] = token
    answer = ask(server, "y" * 2_000, **headers)
    return answer.headers["X-Agent-Affinity"], answer.headers["X-Agent-Served"].split("why=")[1]


@pytest.mark.parametrize(
    "route", ["/reset_prefix_cache", "/pause?mode=wait"], ids=["reset", "pause"]
)
def test_after_the_caches_were_emptied_every_process_gives_tokens_of_a_later_epoch(server, route):
    before, _ = turn(server, 0)
    answer = httpx.post(server.root_url + route, timeout=60, trust_env=False)
    if route.startswith("/pause"):
        if answer.status_code == 404:
            pytest.skip("this vLLM serves no /pause")
        assert httpx.post(f"{server.root_url}/resume", trust_env=False).status_code == 200
    assert answer.status_code == 200
    # Other processes look at what was ordered four times a second.
    tokens = {turn(server, n, before)[0] for n in range(30)}
    epochs = {int(f"{token}.0".split(".")[2]) for token in tokens}
    assert max(epochs) > int(f"{before}.0".split(".")[2])
    after = max(tokens, key=lambda token: int(f"{token}.0".split(".")[2]))
    assert {turn(server, n, after) for n in range(31, 45)} == {(after, "home")}
