"""Several endpoints of one data-parallel group: what each may address, and whose token is whose.

vLLM takes a model for a mixture of experts by its configuration alone, and only such a model
may have an external load balancer. The tiny one stays what it is and only says so, since vLLM's
CPU build cannot compute one over several ranks (`CpuCommunicator` has no `all_gatherv`).
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import httpx
import openai

import tenuto
from examples.demo.engines import vllm_server
from examples.demo.processes import Server
from tenuto_vllm.engine.view import VllmView
from tests.loopback import eventually

BLOCKS, BLOCK_SIZE = 1024, 32
SIZE: dict[str, Any] = {
    "num_blocks": BLOCKS,
    "block_size": BLOCK_SIZE,
    "middleware": ("tenuto_vllm.TurnMiddleware", "tests.vllm.test_load_balancing.ViewShown"),
    "ready_timeout_s": 600,
}
SAYS_EXPERTS = ("--hf-overrides", '{"num_local_experts": 4}')
PATH = "/view"


class ViewShown:
    """Inside the server: show what the view makes of this process's engine client."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") != PATH:
            await self._app(scope, receive, send)
            return
        view = VllmView(scope["app"].state.engine_client)
        shown = {
            "pid": os.getpid(),
            "client": type(view.engine_client.engine_core).__name__,
            "ranks": view.ranks(),
            "loads": list(view.loads()),
            "capacity": view.capacity(),
            "instance": view.instance(),
        }
        kind = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        await send({"type": "http.response.body", "body": json.dumps(shown).encode()})


@contextmanager
def together(*servers: AbstractContextManager[Any]) -> Iterator[list[Any]]:
    """Enter all at once: each waits in its start for the others."""
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        yield list(pool.map(stack.enter_context, servers))


def views(server: Server, api_processes: int) -> list[dict[str, Any]]:
    """Return what each API process of a server shows."""
    seen: dict[int, dict[str, Any]] = {}

    def look() -> bool:
        # A connection of its own, so that the kernel may deal it to any of them.
        shown = httpx.get(server.root_url + PATH, timeout=30, trust_env=False).json()
        seen[shown["pid"]] = shown
        return len(seen) == api_processes

    assert eventually(look, timeout_s=60)
    return list(seen.values())


def check(shown: list[dict[str, Any]], client: str, ranks: int) -> str:
    """Check the views of one endpoint and return its instance."""
    for each in shown:
        assert each["client"] == client
        assert (each["ranks"], len(each["loads"])) == (ranks, ranks)
        assert each["capacity"] == BLOCKS * BLOCK_SIZE
    (instance,) = {each["instance"] for each in shown}
    return instance


def group() -> list[str]:
    """Return the options by which the servers of one group find each other."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    return ["--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", str(port)]


def ask(server: Server, token: str | None, turn: int) -> tuple[str, str]:
    """Make one call of a session as the protocol has it; return its token and what decided."""
    headers = {"X-Session-ID": "0123456789abcdef", "X-Agent-Turn": f"n={turn}"}
    if token is not None:
        headers["X-Agent-Affinity"] = token
    body = {"model": "tiny", "prompt": "word " * 40, "max_tokens": 1}
    url = f"{server.base_url}/completions"
    answer = httpx.post(url, json=body, headers=headers, timeout=120, trust_env=False)
    assert answer.status_code == 200
    return answer.headers["x-agent-affinity"], answer.headers["x-agent-served"]


def run_sessions(client: Any, sessions: int, turns: int) -> dict[str, list[tuple[str, int]]]:
    """Return by session, for each turn, the URL that served it and its cached tokens."""
    served: dict[str, list[tuple[str, int]]] = {}
    with tenuto.run() as run:
        for turn in range(turns):
            for number in range(sessions):
                prompt = f"{number} policy " * 60 + f"turn {turn} " * turn
                with run.agent("worker", instance=str(number)) as agent:
                    raw = client.completions.with_raw_response.create(
                        model="tiny", prompt=prompt, max_tokens=1
                    )
                usage = raw.parse().usage
                cached = usage.prompt_tokens_details
                served.setdefault(agent.session_id, []).append(
                    (
                        str(raw.http_response.url.netloc),
                        (cached.cached_tokens or 0) if cached else 0,
                    )
                )
    return served


def test_endpoints_behind_an_external_load_balancer_know_each_others_tokens_for_strangers() -> None:
    options = [*group(), *SAYS_EXPERTS]
    ranks = (
        vllm_server(ranks=2, extra_args=["--data-parallel-rank", str(rank), *options], **SIZE)
        for rank in range(2)
    )
    with together(*ranks) as servers:
        first, second = (check(views(one, 1), "DPAsyncMPClient", 1) for one in servers)
        assert first != second

        token, why = ask(servers[0], None, 0)
        assert "why=first" in why
        assert "why=home" in ask(servers[0], token, 1)[1]
        elsewhere, why = ask(servers[1], token, 2)
        assert "why=home" not in why
        assert elsewhere.split(".")[0] != token.split(".")[0]

        urls = [one.base_url for one in servers]
        with openai.OpenAI(base_url=urls[0], api_key="none", timeout=120) as plain:
            client = tenuto.retrying(plain, base_urls=urls, spread_sessions=True)
            served = run_sessions(client, sessions=8, turns=3)
    assert {len({url for url, _ in turns}) for turns in served.values()} == {1}
    assert len({turns[0][0] for turns in served.values()}) == 2
    for turns in served.values():
        assert all(cached > 0 for _, cached in turns[1:])


def test_nodes_of_a_hybrid_load_balancer_address_their_own_ranks_and_differ() -> None:
    options = [*group(), "--data-parallel-hybrid-lb", "--data-parallel-size-local", "2"]
    api_processes = (2, 1)
    nodes = (
        vllm_server(
            ranks=4,
            api_processes=count,
            extra_args=[*options, "--data-parallel-start-rank", str(2 * node)],
            **SIZE,
        )
        for node, count in enumerate(api_processes)
    )
    with together(*nodes) as servers:
        instances = [
            check(views(one, count), "DPLBAsyncMPClient", 2)
            for one, count in zip(servers, api_processes, strict=True)
        ]
        assert len(set(instances)) == 2
        token, _ = ask(servers[1], None, 0)
        assert "why=home" in ask(servers[1], token, 1)[1]
        assert "why=first" in ask(servers[0], token, 2)[1]


def test_one_endpoint_addresses_the_ranks_of_a_node_without_an_api_too() -> None:
    options = [*group(), "--data-parallel-size-local", "1"]
    head = vllm_server(ranks=2, api_processes=2, extra_args=options, **SIZE)
    start = ["--data-parallel-start-rank", "1"]
    node = vllm_server(ranks=2, headless=True, extra_args=[*options, *start], **SIZE)
    with together(head, node) as (server, _):
        check(views(server, 2), "DPLBAsyncMPClient", 2)
        with openai.OpenAI(base_url=server.base_url, api_key="none", timeout=120) as client:
            served = run_sessions(tenuto.wrap(client, dialect="vllm"), sessions=4, turns=3)
        for turns in served.values():
            assert all(cached > 0 for _, cached in turns[1:])


def test_the_api_processes_of_one_rank_share_an_instance_that_a_restart_changes() -> None:
    instances: set[str] = set()
    for _ in range(2):
        with vllm_server(ranks=1, api_processes=2, **SIZE) as server:
            instances.add(check(views(server, 2), "AsyncMPClient", 1))
    assert len(instances) == 2
