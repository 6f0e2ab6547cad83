"""Recorded agents beside chat on a real vLLM with a small cache: stock, and with leases.

    python -m benchmarks.retention.serving [--pools 500 700 1000 3000] [--repeat N]

Two servers of one rank are up at a time and get the same load in turn. Prompts are token ids, so
that both sides are asked the same to the token, and every answer is compared. Prints JSON;
progress goes to stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import random
import statistics
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.machine import machine
from examples.demo.engines import MODEL_NAME, vllm_server
from tenuto import _wire
from tenuto.replay.text import prompt_tokens
from tenuto.trace import Trace, read
from tenuto.trace.scale import scale

FOLDER = Path(__file__).parents[2] / "examples/traces"
FILES = ("weka_sample_f8.jsonl.gz", "weka_trace_0277_f8.jsonl.gz")
BLOCK, VOCAB = 32, 500
# Of lengths, on top of what the files are scaled by; of waits, with the longest in seconds.
FACTOR, WAITS, LONGEST_WAIT_S = 4, 0.15, 6.0
LIVE_SESSIONS, MOST_TURNS, ANSWER = 8, 10, 12
CHATS_PER_S, CHAT_TOKENS, CHAT_ANSWER = 3.0, (200, 900), 8
# How wrong a client's hint of its tool's time is: sigma of its logarithm.
NOISE = 0.7
POOLS = (500, 700, 1000, 3000)
OURS = ("--scheduler-cls", "tenuto_vllm.TurnScheduler")
SIDES: dict[str, dict[str, Any]] = {
    "stock": {},
    "tenuto": {"middleware": ("tenuto_vllm.TurnMiddleware",), "extra_args": OURS},
}


@dataclass(slots=True)
class Load:
    """One run of the workload against one server; times are seconds.

    Attributes:
        agents, chats: of each call its prompt's tokens, those found cached, time to first token.
        answers: digest of each answer, by what was asked.
    """

    url: str
    seed: int
    gaps: bool
    most_turns: int
    client: httpx.AsyncClient
    agents: list[tuple[int, int, float]] = field(default_factory=list)
    chats: list[tuple[int, int, float]] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)

    async def ask(
        self, name: str, prompt: list[int], tokens: int, headers: dict[str, str]
    ) -> tuple[int, int, float]:
        """Ask for an answer and return what the call met."""
        body = {
            "model": MODEL_NAME,
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        begun, first, text, usage = time.perf_counter(), 0.0, "", None
        url = f"{self.url}/v1/completions"
        async with self.client.stream("POST", url, json=body, headers=headers) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line[6:])
                usage = event.get("usage") or usage
                for choice in event["choices"]:
                    first = first or time.perf_counter() - begun
                    text += choice["text"]
        if usage is None:
            raise RuntimeError(f"{name}: the answer ended without its usage")
        self.answers[name] = hashlib.sha256(text.encode()).hexdigest()
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return usage["prompt_tokens"], cached, first

    async def agent(self, trace: Trace, number: int) -> None:
        """Play one recorded run: its main session alone."""
        draw = random.Random(f"{self.seed} {number}")
        salt = f"{trace.id} {self.seed}"
        name = f"run-{self.seed}-{number}-main"
        turns = trace.sessions[0].turns[: self.most_turns]
        for n, turn in enumerate(turns):
            later = turns[n + 1] if n + 1 < len(turns) else None
            wait_s = later.start_s - turn.end_s if later is not None else 0.0
            wait_s = min(max(WAITS * wait_s, 0.2), LONGEST_WAIT_S)
            gap = round(1000 * wait_s * draw.lognormvariate(0, NOISE)) if self.gaps else None
            is_tool = (turn.finish_reason or "").startswith("tool")
            following = "end" if later is None else "tool" if is_tool else "user"
            says = _wire.Turn(n=n, next=following, gap=gap if later is not None else None)
            prompt = prompt_tokens(
                turn.blocks, turn.input_tokens, trace.block_size, vocab=VOCAB, salt=salt, call=n
            )
            headers = _wire.encode(_wire.Markers(name, turn=says))
            self.agents.append(await self.ask(f"{number} {n}", prompt, ANSWER, headers))
            await asyncio.sleep(wait_s)
        await self.client.post(f"{self.url}/tenuto/sessions/end", json={"sessions": [name]})

    async def chat(self, number: int) -> None:
        """Ask once, with nothing that anybody has asked before."""
        draw = random.Random(f"{self.seed} chat {number}")
        prompt = [draw.randrange(3, VOCAB) for _ in range(draw.randint(*CHAT_TOKENS))]
        self.chats.append(await self.ask(f"chat {number}", prompt, CHAT_ANSWER, {}))


async def loaded(
    url: str, traces: Sequence[Trace], seed: int, *, gaps: bool, most_turns: int = MOST_TURNS
) -> Load:
    """Run the workload once."""
    limits = httpx.Limits(max_connections=200)
    async with httpx.AsyncClient(limits=limits, timeout=300) as client:
        load = Load(url, seed, gaps, most_turns, client)
        left = deque(enumerate(traces))

        async def live() -> None:
            while left:
                number, trace = left.popleft()
                await load.agent(trace, number)

        async def chats() -> None:
            draw = random.Random(f"{seed} chats")
            async with asyncio.TaskGroup() as group:
                for number in range(100_000):
                    await asyncio.sleep(draw.expovariate(CHATS_PER_S))
                    group.create_task(load.chat(number))

        people = asyncio.create_task(chats())
        async with asyncio.TaskGroup() as group:
            for _ in range(LIVE_SESSIONS):
                group.create_task(live())
        people.cancel()
        await asyncio.gather(people, return_exceptions=True)
    return load


def recorded() -> list[Trace]:
    """Return the recorded runs, scaled down."""
    return [scale(trace, FACTOR) for name in FILES for trace in read(FOLDER / name)]


def told(loads: Sequence[Load]) -> dict[str, Any]:
    """Return the figures of one side's runs together."""
    calls = [call for load in loads for call in load.agents]
    chats = [call for load in loads for call in load.chats]
    prompt, cached = sum(call[0] for call in calls), sum(call[1] for call in calls)
    return {
        "calls": len(calls),
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "uncached_tokens": prompt - cached,
        "hit": round(cached / prompt, 4),
        "ttft_ms": _percentiles(calls),
        "chats": len(chats),
        "chat_ttft_ms": _percentiles(chats),
    }


def _percentiles(calls: Sequence[tuple[int, int, float]]) -> dict[str, float]:
    cuts = statistics.quantiles([1000 * call[2] for call in calls], n=10)
    return {"p50": round(cuts[4], 1), "p90": round(cuts[8], 1)}


def measured(pool: int, traces: Sequence[Trace], repeat: int, *, gaps: bool) -> dict[str, Any]:
    """Run both sides at one size of the pool, in turn."""
    loads: dict[str, list[Load]] = {name: [] for name in SIDES}
    with ExitStack() as stack:
        size = {"ranks": 1, "block_size": BLOCK, "num_blocks": pool, "max_model_len": 8192}
        urls = {
            name: stack.enter_context(vllm_server(**size, **side)).root_url
            for name, side in SIDES.items()
        }
        for seed in range(repeat):
            for name, url in urls.items():
                load = asyncio.run(loaded(url, traces, seed, gaps=gaps))
                loads[name].append(load)
                print(pool, seed, name, told([load]), file=sys.stderr, flush=True)
        state = httpx.get(f"{urls['tenuto']}/tenuto/state", timeout=30).json()["retention"]
    pairs = [
        (stock.answers[name], ours.answers[name])
        for stock, ours in zip(loads["stock"], loads["tenuto"], strict=True)
        for name in stock.answers.keys() & ours.answers.keys()
    ]
    return {
        "pool_blocks": pool,
        "gaps": gaps,
        "sides": {name: told(runs) for name, runs in loads.items()},
        "answers_compared": len(pairs),
        "answers_equal": sum(one == two for one, two in pairs),
        "state": state,
    }


def main() -> None:
    """Run every size and print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=2, help="times each (default 2)")
    parser.add_argument("--pools", type=int, nargs="+", default=POOLS, help="sizes in blocks")
    parser.add_argument("--no-gaps", action="store_true", help="clients do not expect their waits")
    given = parser.parse_args()
    traces = recorded()
    runs = [measured(pool, traces, given.repeat, gaps=not given.no_gaps) for pool in given.pools]
    about = {"machine": machine(), "block_size": BLOCK, "repeat": given.repeat}
    print(json.dumps({**about, "runs": runs}, indent=1))


if __name__ == "__main__":
    main()
