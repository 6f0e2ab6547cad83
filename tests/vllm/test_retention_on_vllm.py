"""Agents beside chat on real servers with little cache: what leases save, and what none leaves."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from benchmarks.retention.serving import BLOCK, SIDES, Load, loaded, recorded, told
from examples.demo.engines import MODEL_NAME, vllm_server
from tenuto import _wire
from tests.loopback import eventually

POOL = 300
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "word " * 80},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "word " * 80}]},
}


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    size = {"ranks": 1, "block_size": BLOCK, "num_blocks": POOL, "max_model_len": 8192}
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(2) as starters:
        # Both mostly import, on a core each.
        starting = {
            name: starters.submit(stack.enter_context, vllm_server(**size, **side))
            for name, side in SIDES.items()
        }
        yield {name: server.result().root_url for name, server in starting.items()}


def state_of(url: str) -> dict[str, Any]:
    [state] = httpx.get(f"{url}/tenuto/state", timeout=30).json()["retention"]
    return state


async def side_by_side(urls: dict[str, str]) -> dict[str, Load]:
    async with asyncio.TaskGroup() as group:
        tasks = {
            name: group.create_task(loaded(url, recorded()[:10], 0, gaps=True, most_turns=7))
            for name, url in urls.items()
        }
    return {name: task.result() for name, task in tasks.items()}


def test_agents_compute_a_quarter_less_at_least_and_every_answer_is_the_same(
    urls: dict[str, str],
) -> None:
    loads = asyncio.run(side_by_side(urls))
    stock, ours = loads["stock"].answers, loads["tenuto"].answers
    both = stock.keys() & ours.keys()
    assert len(both) > len(loads["tenuto"].agents)
    assert [name for name in both if stock[name] != ours[name]] == []
    computed = {name: told([load])["uncached_tokens"] for name, load in loads.items()}
    assert computed["tenuto"] < 0.75 * computed["stock"]
    counts = state_of(urls["tenuto"])["counts"]
    assert counts["honoured"] > 0.5 * counts["returned"]
    assert counts["saved_tokens"] > 0
    assert state_of(urls["tenuto"])["leases"] == 0


def test_clients_that_hang_up_leave_no_block_in_use_and_no_lease(urls: dict[str, str]) -> None:
    url, draw = urls["tenuto"], random.Random(0)

    async def ask(client: httpx.AsyncClient, number: int) -> None:
        route, prompt = draw.choice(list(ROUTES.items()))
        name = f"session-{number % 9}-of-the-fuzz"
        turn = _wire.Turn(next=draw.choice(["tool", "user", None]), gap=60_000)
        headers = _wire.encode(_wire.Markers(name, turn=turn)) if number % 4 else {}
        headers |= draw.choice([{}, {"X-Agent-Turn": "next=tool, ttl=-1, gap=x, prio=99"}])
        body = {"model": MODEL_NAME, "max_tokens": 60, "ignore_eos": True, "stream": True, **prompt}
        async with client.stream("POST", url + route, json=body, headers=headers) as answer:
            assert answer.status_code == 200
            lines, hangs_up = 0, number % 2
            async for _ in answer.aiter_lines():
                lines += 1
                if hangs_up and lines > number % 17:
                    return

    async def all_of_them() -> None:
        async with httpx.AsyncClient(timeout=120) as client, asyncio.TaskGroup() as group:
            for number in range(150):
                group.create_task(ask(client, number))

    asyncio.run(all_of_them())
    ended = [f"session-{number}-of-the-fuzz" for number in range(9)]
    httpx.post(f"{url}/tenuto/sessions/end", json={"sessions": ended}).raise_for_status()

    def is_quiet() -> bool:
        state = state_of(url)
        return state["free"] == POOL - 1 and state["leased"] == 0

    assert eventually(is_quiet)
