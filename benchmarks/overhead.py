"""What stamping a call, serving a request and picking a rank cost, in microseconds.

    python -m benchmarks.overhead [--rounds N]

Both sides of a pair run interleaved in one process, so that the machine's drift meets
both alike; the figure is the median of the differences within pairs of neighbours.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import platform
import statistics
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx2
import openai
from openai._models import FinalRequestOptions

import tenuto
import tenuto.openai
from benchmarks.machine import machine
from tenuto import _wire as client_wire
from tenuto_vllm import TurnMiddleware
from tenuto_vllm._wire import Markers, Turn
from tenuto_vllm.engine.seam import SCOPE_KEY
from tenuto_vllm.engine.view import VllmView
from tenuto_vllm.model import Placement
from tenuto_vllm.placement import Ledger, Pending, place

Step = Callable[[], Any]
TURNS = 43
SMALL = [{"role": "user", "content": "hello"}]
PROMPT_4_KB = [
    {"role": role, "content": "x" * 400} for role in ("system", *("user", "assistant") * 4, "user")
]


ONE_4_KB = [{"role": "user", "content": "x" * 4000}]
PROMPT_600_KB = [{"role": "user", "content": "x" * 2000} for _ in range(300)]


class Pairs:
    """Costs of two steps, run in turn."""

    def __init__(self) -> None:
        self._costs: tuple[list[float], list[float]] = ([], [])

    def measure(self, bare: Step, ours: Step, rounds: int) -> None:
        """Run both `rounds` times; each goes first in turn."""
        for i in range(rounds):
            for side in ((0, 1), (1, 0))[i % 2]:
                step = (bare, ours)[side]
                started = time.perf_counter_ns()
                step()
                self._costs[side].append((time.perf_counter_ns() - started) / 1000)

    async def measure_async(self, bare: Step, ours: Step, rounds: int) -> None:
        """Do the same with steps that return coroutines."""
        for i in range(rounds):
            for side in ((0, 1), (1, 0))[i % 2]:
                step = (bare, ours)[side]
                started = time.perf_counter_ns()
                await step()
                self._costs[side].append((time.perf_counter_ns() - started) / 1000)

    def medians(self) -> dict[str, float]:
        """Return the medians of both sides and of their differences, microseconds."""
        bare, ours = self._costs
        return {
            "bare_us": round(statistics.median(bare), 2),
            "ours_us": round(statistics.median(ours), 2),
            "extra_us": round(
                statistics.median([b - a for a, b in zip(bare, ours, strict=True)]), 2
            ),
        }


def stamping(messages: list[dict[str, str]], rounds: int, *, is_async: bool) -> dict[str, float]:
    """Time `chat.completions.create` of a bare and of a wrapped client, answered in memory.

    The network is left out: it would drown the difference. All of a call of ours is in: the
    session, the turn, the headers, the guard, and the token read from the answer.
    """
    body = json.dumps(
        {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": []}
    )

    def handler(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(
            200,
            headers={"X-Agent-Affinity": "0123456789abcdef.1", "Content-Type": "application/json"},
            content=body,
        )

    def client() -> Any:
        transport = httpx2.MockTransport(handler)
        url = "http://127.0.0.1:9/v1"
        if is_async:
            http = httpx2.AsyncClient(transport=transport)
            return openai.AsyncOpenAI(api_key="k", base_url=url, http_client=http)
        return openai.OpenAI(
            api_key="k", base_url=url, http_client=httpx2.Client(transport=transport)
        )

    bare, ours = client(), tenuto.wrap(client())
    prompts = [[*messages, {"role": "user", "content": str(i)}] for i in range(64)]
    turn = itertools.count()

    def call(one: Any) -> Step:
        return lambda: one.chat.completions.create(model="m", messages=prompts[next(turn) % 64])

    async def all_async() -> None:
        for session in range(rounds // TURNS):
            with run.agent("planner", instance=session):
                await costs.measure_async(call(bare), call(ours), TURNS)

    # A session has about 43 turns, so the agent changes after as many pairs.
    costs = Pairs()
    with tenuto.run() as run:
        if is_async:
            asyncio.run(all_async())
        else:
            for session in range(rounds // TURNS):
                with run.agent("planner", instance=session):
                    costs.measure(call(bare), call(ours), TURNS)
    return costs.medians()


def marking(start: list[dict[str, str]], more: str, rounds: int) -> dict[str, float]:
    """Time what marking adds inside a call, and reading its answer, microseconds.

    Args:
        start: the first prompt of each session.
        more: what each further turn's message says; the prompt grows by it.
        rounds: calls measured; openai's own work lies between them, as in a program.
    """
    costs: dict[str, list[float]] = {"marking_us": [], "back_to_back_us": [], "reading_us": []}

    def timed_marked(client: Any, options: Any, build: Callable[[Any], Any]) -> Any:
        inner_ns = 0

        def timed_build(one: Any) -> Any:
            nonlocal inner_ns
            started = time.perf_counter_ns()
            try:
                return build(one)
            finally:
                inner_ns += time.perf_counter_ns() - started

        started = time.perf_counter_ns()
        request = marked(client, options, timed_build)
        costs["marking_us"].append((time.perf_counter_ns() - started - inner_ns) / 1000)
        return request

    def timed_learned(*args: Any) -> Any:
        started = time.perf_counter_ns()
        value = learned(*args)
        costs["reading_us"].append((time.perf_counter_ns() - started) / 1000)
        return value

    marked, learned = tenuto.openai.marked, tenuto.openai._learned
    tenuto.openai.marked, tenuto.openai._learned = timed_marked, timed_learned
    answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": []}
    headers = {"X-Agent-Affinity": "0123456789abcdef.1", "Content-Type": "application/json"}
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=headers, json=answer))
    http = httpx2.Client(transport=transport)
    client = openai.OpenAI(api_key="k", base_url="http://127.0.0.1:9/v1", http_client=http)
    tenuto.wrap(client)
    options = FinalRequestOptions.construct(method="post", url="/chat/completions", headers={})
    request = client._build_request(options)
    bare = list(request.headers.raw)
    try:
        with tenuto.run() as run:
            for session in range(max(1, rounds // TURNS)):
                messages = list(start)
                with run.agent("planner", instance=session):
                    for _ in range(min(rounds, TURNS)):
                        client.chat.completions.create(model="m", messages=messages)
                        messages = [*messages, {"role": "user", "content": more}]
                # And with nothing in between.
                messages = list(start)
                with run.agent("checker", instance=session):
                    for _ in range(min(rounds, TURNS)):
                        options.json_data = {"messages": messages, "model": "m"}
                        request.headers = httpx2.Headers(bare)
                        started = time.perf_counter_ns()
                        marked(client, options, lambda _: request)
                        costs["back_to_back_us"].append((time.perf_counter_ns() - started) / 1000)
                        messages = [*messages, {"role": "user", "content": more}]
    finally:
        tenuto.openai.marked, tenuto.openai._learned = marked, learned
    return {name: round(statistics.median(cost), 2) for name, cost in costs.items()}


def finish(waiting: Any) -> None:
    """Run a coroutine that never has to wait, without the cost of an event loop."""
    try:
        waiting.send(None)
    except StopIteration:
        return
    raise RuntimeError("it waited")


def middleware(turn: int, ranks: int, rounds: int) -> dict[str, float]:
    """Time one request through a bare ASGI app and through the middleware before it.

    Args:
        turn: 0 is placed by the load of each rank, any other goes home by its token.
        ranks: ranks of the engine, which is vLLM's engine client in shape.
        rounds: pairs measured.
    """

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if SCOPE_KEY in scope:
            # As the engine client does when it has cut the prompt into tokens.
            scope[SCOPE_KEY].prompt_tokens = 8_000
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        pass

    engines = [b"%d" % i for i in range(ranks)]
    core = SimpleNamespace(
        core_engines=engines,
        lb_engines=[[0, 0, 0.0] for _ in engines],
        engine_inflight=Counter(),
        client_count=1,
        stats_update_address="ipc://x",
    )
    parallel = SimpleNamespace(data_parallel_size=ranks, data_parallel_size_local=ranks)
    cache = SimpleNamespace(num_gpu_blocks=100_000 * ranks, block_size=16)
    config = SimpleNamespace(parallel_config=parallel, cache_config=cache)
    client = SimpleNamespace(engine_core=core, vllm_config=config)
    token = f"{VllmView(client).instance()}.3" if turn else None
    said = client_wire.Markers(
        "a" * 32, "b" * 32, "c" * 32, client_wire.Turn(n=turn, attempt=0, phase="tool"), token
    )
    common = ("host", "accept", "accept-encoding", "connection", "user-agent", "authorization")
    headers = [(name.encode(), b"x" * 16) for name in (*common, "content-type", "content-length")]
    headers += [(f"x-stainless-{i}".encode(), b"x" * 8) for i in range(8)]
    headers += [(k.lower().encode(), v.encode()) for k, v in client_wire.encode(said).items()]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "root_path": "",
        "headers": headers,
        "app": SimpleNamespace(state=SimpleNamespace(engine_client=client)),
    }

    sessions = itertools.count()

    def asked() -> dict[str, Any]:
        if turn:
            return dict(scope)
        session = (b"x-session-id", b"session-%08d" % next(sessions))
        return {**scope, "headers": [session, *headers]}

    def request(target: Callable[..., Any]) -> Step:
        return lambda: finish(target(asked(), receive, send))

    costs = Pairs()
    costs.measure(request(app), request(TurnMiddleware(app)), rounds)
    return costs.medians()


def picking(ranks: int, rounds: int) -> dict[str, float]:
    """Time one choice of a rank, microseconds, with two hundred sessions at home on each."""
    capacity, size = 1_000_000, 5_000
    ledger, busy = Ledger(ranks, capacity), Pending(1_000.0)
    for number in range(200 * ranks):
        name, rank = f"session-{number:08}", number % ranks
        ledger.sent(name, rank, 0, 0.0)
        ledger.begun(name, rank, size, 0.0)
    ledger.sent("lost-session", 0, 0, 1.0)
    ledger.begun("lost-session", 0, size, 1.0)
    for number in range(200):
        ledger.begun(f"#{number}", 0, size, 2.0)
    busy.begin(ranks - 1, 100_000)
    idle, some_busy = [0.0] * ranks, [float(i % 2) for i in range(ranks)]
    warm = Markers(f"session-{200 * ranks - 1:08}", turn=Turn(n=1))
    cases = {
        "first_all_idle_us": (Markers("a" * 32, turn=Turn(n=0)), None, idle),
        "first_half_busy_us": (Markers("a" * 32, turn=Turn(n=0)), None, some_busy),
        "hash_us": (Markers("a" * 32, turn=Turn(n=1)), None, idle),
        "home_us": (Markers("session-00000003", turn=Turn(n=1)), Placement(3, "home"), idle),
        "lost_us": (Markers("lost-session", turn=Turn(n=1)), Placement(0, "home"), idle),
        "long_wait_us": (warm, Placement(ranks - 1, "home"), idle),
    }
    costs: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, (markers, named, load) in cases.items():
            started = time.perf_counter_ns()
            place(
                markers, named, ledger=ledger, pending=busy, loads=lambda load=load: load, now_s=3.0
            )
            costs[name].append((time.perf_counter_ns() - started) / 1000)
    return {name: round(statistics.median(cost), 2) for name, cost in costs.items()}


def main() -> None:
    """Print every figure as one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=4000, help="pairs measured (default 4000)")
    rounds = parser.parse_args().rounds
    print(
        json.dumps(
            {
                "python": platform.python_version(),
                "machine": machine(),
                "openai": openai.__version__,
                "rounds": rounds,
                "stamping_small_prompt": stamping(SMALL, rounds, is_async=False),
                "stamping_small_prompt_async": stamping(SMALL, rounds, is_async=True),
                "stamping_4_kb_prompt": stamping(PROMPT_4_KB, rounds, is_async=False),
                "marking_4_kb_prompt": marking(ONE_4_KB, "x", rounds),
                "marking_600_kb_prompt": marking(PROMPT_600_KB, "x" * 2000, 43),
                "middleware_home_2_ranks": middleware(7, 2, rounds),
                "middleware_first_turn_64_ranks": middleware(0, 64, rounds),
                "picking_at_64_ranks": picking(64, rounds),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
