"""Many sessions at once: is every key right, is memory flat, and what does a call cost.

    python -m benchmarks.identity [--calls N]

A thousand sessions in one event loop, then 64 threads, share one wrapped client each; the
server is in memory and says whether a request's key is that of the session it was made in.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import platform
import sys
import threading
import time
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2
import openai

import tenuto
from benchmarks.machine import machine
from tenuto import process

SESSIONS = 1000
THREADS = 64
TURNS = 43
MEASURED = 100
ANSWER = json.dumps(
    {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "x"}}
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105},
    }
)
URL = "http://127.0.0.1:9/v1"
HEADERS = {"X-Agent-Affinity": "0123456789abcdef.1", "Content-Type": "application/json"}


class Server:
    """Counts what is wrong. A prompt is `session id/call`, and each is sent once."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._last: dict[str, int] = {}

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        """Check one request and answer it."""
        said = json.loads(request.content)["messages"][-1]["content"]
        session, _, _ = said.partition("/")
        self.counts["calls"] += 1
        if request.headers["x-session-id"] != session:
            self.counts["wrong key"] += 1
        turn = dict(p.split("=", 1) for p in request.headers["x-agent-turn"].split(", "))
        n = int(turn["n"])
        if turn["attempt"] != "0" or n != self._last.get(session, -1) + 1:
            self.counts["wrong turn"] += 1
        self._last[session] = n
        return httpx2.Response(200, headers=HEADERS, content=ANSWER)


def resident_kb() -> int:
    """Return this process's resident memory, kB."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


def report(done: int, calls: int) -> None:
    """Say on stderr how far it is."""
    print(f"\r{done:,} of {calls:,} calls", end="", file=sys.stderr, flush=True)


async def in_one_loop(calls: int, server: Server) -> dict[str, Any]:
    """Make calls in a thousand sessions at once, in rounds, and watch the memory."""
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(server.answer))
    client = tenuto.wrap(openai.AsyncOpenAI(api_key="k", base_url=URL, http_client=http))
    rounds = max(4, calls // SESSIONS)
    memory: list[int] = []
    reached = asyncio.Barrier(SESSIONS + 1)

    async def session(run: tenuto.Run, i: int) -> None:
        with run.agent("worker", instance=i) as agent:
            for call in range(rounds):
                said = [{"role": "user", "content": f"{agent.session_id}/{call}"}]
                await client.chat.completions.create(model="m", messages=said)
                if call % (rounds // 4) == rounds // 4 - 1 and call // (rounds // 4) < 4:
                    await reached.wait()

    with tenuto.run() as run:
        tasks = [asyncio.create_task(session(run, i)) for i in range(SESSIONS)]
        for quarter in range(4):
            await reached.wait()
            gc.collect()
            memory.append(resident_kb())
            report((quarter + 1) * rounds * SESSIONS // 4, calls)
        await asyncio.gather(*tasks)
    return {"sessions": SESSIONS, "calls": rounds * SESSIONS, "resident_kb_by_quarter": memory}


def in_threads(calls: int, server: Server) -> dict[str, Any]:
    """Make calls from 64 threads, each with sessions of its own."""
    http = httpx2.Client(transport=httpx2.MockTransport(server.answer))
    client = tenuto.wrap(openai.OpenAI(api_key="k", base_url=URL, http_client=http))
    each = max(1, calls // THREADS)
    before = resident_kb()

    def work(i: int) -> None:
        with tenuto.run(f"thread-{i}") as run:
            for call in range(each):
                with run.agent("worker", instance=call // TURNS) as agent:
                    said = [{"role": "user", "content": f"{agent.session_id}/{call}"}]
                    client.chat.completions.create(model="m", messages=said)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    return {"threads": THREADS, "calls": each * THREADS, "resident_kb": [before, resident_kb()]}


def per_session() -> float:
    """Return the bytes that one live session takes, after a prompt that grew to 72 messages."""
    answered = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=HEADERS, content=ANSWER))
    http = httpx2.Client(transport=answered)
    client = tenuto.wrap(openai.OpenAI(api_key="k", base_url=URL, http_client=http))
    with tenuto.run() as run:
        # The first sessions also fill what is shared by all.
        for count in (30, MEASURED):
            gc.collect()
            tracemalloc.start()
            for i in range(count):
                for turn in range(1, 10):
                    said = [{"role": "user", "content": f"{i} {m}"} for m in range(8 * turn)]
                    with run.agent(f"worker {count}", instance=i):
                        client.chat.completions.create(model="m", messages=said)
            process.BACKGROUND.flush(5)
            gc.collect()
            ours = tracemalloc.take_snapshot().filter_traces(
                [tracemalloc.Filter(inclusive=True, filename_pattern="*tenuto*")]
            )
            taken = sum(trace.size for trace in ours.traces)
            tracemalloc.stop()
    return round(taken / MEASURED, 1)


def main() -> None:
    """Print every figure as one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=1_000_000, help="default 1,000,000")
    calls = parser.parse_args().calls
    server, started = Server(), time.perf_counter()
    bytes_each = per_session()
    loop = asyncio.run(in_one_loop(calls * 4 // 5, server))
    threads = in_threads(calls // 5, server)
    print(file=sys.stderr)
    figures = {
        "python": platform.python_version(),
        "machine": machine(),
        "openai": openai.__version__,
        "calls": server.counts["calls"],
        "wrong_keys": server.counts["wrong key"],
        "wrong_turns": server.counts["wrong turn"],
        "bytes_per_live_session": bytes_each,
        "one_loop": loop,
        "threads": threads,
        "seconds": round(time.perf_counter() - started),
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
