"""What stamping a call costs, in microseconds.

python -m benchmarks.overhead [--rounds N]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import httpx2
import openai
from openai._models import FinalRequestOptions

import tenuto
import tenuto.openai
from benchmarks.machine import machine
from benchmarks.pairs import Pairs, Step

TURNS = 43
SMALL = [{"role": "user", "content": "hello"}]
PROMPT_4_KB = [
    {"role": role, "content": "x" * 400} for role in ("system", *("user", "assistant") * 4, "user")
]


ONE_4_KB = [{"role": "user", "content": "x" * 4000}]
PROMPT_600_KB = [{"role": "user", "content": "x" * 2000} for _ in range(300)]


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
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
