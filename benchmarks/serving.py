"""What the extension costs a server: microseconds a request, and memory.

python -m benchmarks.serving [--rounds N] [--sessions N]
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.machine import machine
from benchmarks.pairs import Pairs, Step, finish
from tenuto_vllm import TurnMiddleware
from tenuto_vllm._wire import Markers, Turn, encode
from tenuto_vllm.asgi.routes import GENERATION_PATHS
from tenuto_vllm.config import Settings
from tenuto_vllm.engine.seam import SCOPE_KEY
from tenuto_vllm.engine.view import VllmView
from tenuto_vllm.model import Placement
from tenuto_vllm.placement import Content, Ledger, Pending, place

CHAT = "/v1/chat/completions"
# As uvicorn hands a body on.
CHUNK = 64 * 1024
BODIES = {"none": 0, "8,000 tokens": 32_000, "640 KB": 640_000}


def server(ranks: int) -> Any:
    """Return what is as vLLM's engine client in shape, idle."""
    engines = [b"%d" % i for i in range(ranks)]
    core = SimpleNamespace(
        core_engines=engines,
        lb_engines=[[0, 0, 0.0] for _ in engines],
        engine_inflight=Counter(),
        client_count=1,
        stats_update_address="ipc://x",
        engine_ranks_managed=list(range(ranks)),
    )
    parallel = SimpleNamespace(data_parallel_size=ranks, data_parallel_size_local=ranks)
    cache = SimpleNamespace(num_gpu_blocks=100_000 * ranks, block_size=16)
    config = SimpleNamespace(parallel_config=parallel, cache_config=cache, instance_id="x")
    return SimpleNamespace(engine_core=core, vllm_config=config)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Read a request whole and answer it, as the engine does when it has cut the prompt."""
    while (await receive())["more_body"]:
        pass
    if SCOPE_KEY in scope:
        scope[SCOPE_KEY].measure(8_000)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


async def send(message: Any) -> None:
    """Take an answer."""


def chunked(body: bytes) -> list[bytes]:
    """Return a body in chunks, at least one."""
    return [body[at : at + CHUNK] for at in range(0, max(len(body), 1), CHUNK)]


def receiving(parts: list[bytes]) -> Callable[[], Any]:
    """Return a `receive` that gives a body in its chunks."""
    numbers = itertools.count(1)

    async def receive() -> dict[str, Any]:
        number = next(numbers)
        more = number < len(parts)
        return {"type": "http.request", "body": parts[number - 1], "more_body": more}

    return receive


def scope_of(client: Any, path: str, markers: Markers | None) -> dict[str, Any]:
    """Return an ASGI scope as openai's client makes them."""
    common = ("host", "accept", "accept-encoding", "connection", "user-agent", "authorization")
    headers = [(name.encode(), b"x" * 16) for name in (*common, "content-length")]
    headers += [(b"content-type", b"application/json")]
    headers += [(f"x-stainless-{i}".encode(), b"x" * 8) for i in range(8)]
    if markers is not None:
        headers += [(k.lower().encode(), v.encode()) for k, v in encode(markers).items()]
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "root_path": "",
        "headers": headers,
        "app": SimpleNamespace(state=SimpleNamespace(engine_client=client)),
    }


def extension(folder: Path) -> Any:
    """Return the middleware before the application."""
    return TurnMiddleware(app, settings=Settings(state_dir=folder))


def at_home(ranks: int, path: str, body: bytes, rounds: int, folder: Path) -> dict[str, float]:
    """Time a turn that goes home by its token, bare and with the middleware."""
    client = server(ranks)
    token = f"{VllmView(client).instance()}.1"
    markers = Markers("a" * 32, "b" * 32, "c" * 32, Turn(n=7, attempt=0, phase="tool"), token)
    return asked(lambda: scope_of(client, path, markers), body, rounds, folder)


def first_turn(ranks: int, rounds: int, folder: Path) -> dict[str, float]:
    """Time first turns, each of another session, placed by the load of each rank."""
    client, numbers = server(ranks), itertools.count()

    def scope() -> dict[str, Any]:
        name = f"session-{next(numbers):08}"
        return scope_of(client, CHAT, Markers(name, turn=Turn(n=0, phase="start")))

    return asked(scope, b"", rounds, folder)


def unmarked(body: bytes, rounds: int, folder: Path) -> dict[str, float]:
    """Time calls of programs that send nothing: a session is looked for in the body."""
    client = server(2)
    return asked(lambda: scope_of(client, CHAT, None), body, rounds, folder)


def asked(
    scope: Callable[[], dict[str, Any]], body: bytes, rounds: int, folder: Path
) -> dict[str, float]:
    """Time requests through the bare application and through the middleware before it."""
    parts = chunked(body)

    def request(target: Callable[..., Any]) -> Step:
        def step() -> None:
            finish(target(prepared, receiving(parts), send))

        return step

    costs = Pairs()
    bare, ours = request(app), request(extension(folder))
    for _ in range(rounds):
        prepared = scope()
        costs.measure(bare, ours, 1)
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


def by_content(tokens: int, rounds: int) -> float:
    """Return the microseconds in which a session is told by a prompt of so many tokens."""
    content = Content()
    prompts = [[(seed * 7919 + at) % 50_000 for at in range(tokens)] for seed in range(16)]
    costs: list[float] = []
    for number in range(rounds):
        prompt = prompts[number % len(prompts)]
        started = time.perf_counter_ns()
        content.session(prompt)
        costs.append((time.perf_counter_ns() - started) / 1000)
    return round(statistics.median(costs), 2)


def memory(sessions: int, folder: Path) -> list[int]:
    """Return resident kilobytes before and after each quarter of so many sessions' first turns."""
    client, target = server(2), extension(folder)
    resident = [resident_kb()]
    for number in range(sessions):
        markers = Markers(f"session-{number:012}", turn=Turn(n=0, phase="start"))
        finish(target(scope_of(client, CHAT, markers), receiving([b""]), send))
        if (number + 1) % max(1, sessions // 4) == 0:
            gc.collect()
            resident.append(resident_kb())
            print(f"{number + 1:,} sessions", file=sys.stderr, flush=True)
    return resident


def resident_kb() -> int:
    """Return this process's resident memory (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def main() -> None:
    """Print every figure as one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=4000, help="pairs measured (default 4000)")
    parser.add_argument(
        "--sessions", type=int, default=1_000_000, help="for memory (default a million)"
    )
    options = parser.parse_args()
    rounds = options.rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "state")
        bodies = {name: b"x" * size for name, size in BODIES.items()}
        told = {
            "python": platform.python_version(),
            "machine": machine(),
            "rounds": rounds,
            "home_2_ranks": at_home(2, CHAT, b"", rounds, folder),
            "home_by_body": {
                name: at_home(2, CHAT, body, rounds, folder) for name, body in bodies.items()
            },
            "home_by_route": {
                path: at_home(2, path, b"", rounds // 4, folder)
                for path in sorted(GENERATION_PATHS)
            },
            "first_turn_64_ranks": first_turn(64, rounds, folder),
            "unmarked_by_body": {
                name: unmarked(body, rounds // 4, folder) for name, body in bodies.items()
            },
            "picking_at_64_ranks": picking(64, rounds),
            "content_us": {str(size): by_content(size, 400) for size in (8_000, 142_000)},
            "sessions": options.sessions,
            "resident_kb": memory(options.sessions, folder),
        }
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
