"""What recording adds to a call, microseconds.

    python -m benchmarks.recording [--rounds N]

`extra_us` is the caller's cost: calls of one wrapped client, answered in memory, with and
without a recorder, interleaved, while the recorder's thread rests. `noting_us` is the part of
it that lies in the recorder's own steps; for long prompts, where a call takes so long that the
difference drowns, it is the better figure. `writing_us` is what the recorder's thread works
for one call, beside the program.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import openai

import tenuto
from benchmarks.machine import machine
from benchmarks.overhead import ONE_4_KB, PROMPT_600_KB, Pairs
from tenuto import tries
from tenuto.recording.events import Rules, asked_of, body_of, event_of, place_of
from tenuto.trace import line_of
from tenuto.tried import Tried

BOUND_US = 50.0
_ANSWER = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ok"}}
    ],
    "usage": {"prompt_tokens": 1000, "completion_tokens": 1, "total_tokens": 1001},
}


def recording(messages: list[dict[str, str]], rounds: int) -> dict[str, float]:
    """Time calls with a prompt, recorded and not."""
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, json=_ANSWER))
    http = httpx2.Client(transport=transport)
    client: Any = tenuto.wrap(
        openai.OpenAI(api_key="k", base_url="http://127.0.0.1:9/v1", http_client=http)
    )
    seen: list[Tried] = []
    noting: list[float] = []

    def timed(step: Callable[..., None]) -> Callable[..., None]:
        def run_step(*args: Any) -> None:
            started = time.perf_counter_ns()
            step(*args)
            noting[-1] += (time.perf_counter_ns() - started) / 1000

        return run_step

    def call(n: int) -> float:
        prompt = [*messages, {"role": "user", "content": str(n)}]
        started = time.perf_counter_ns()
        client.chat.completions.create(model="m", messages=prompt)
        return (time.perf_counter_ns() - started) / 1000

    costs: tuple[list[float], list[float]] = ([], [])
    with tempfile.TemporaryDirectory() as folder, tenuto.run() as run, run.agent("planner"):
        recorder = tenuto.record(Path(folder) / "run.jsonl")
        sinks = tries.sinks
        for n in range(rounds):
            for side in ((0, 1), (1, 0))[n % 2]:
                tries.sinks = sinks if side else ()
                costs[side].append(call(2 * n + side))
                recorder.flush()
        tries.sinks = (*sinks, seen.append)
        call(2 * rounds)
        # And with the steps themselves timed.
        steps = tries.begin, tries.answered
        tries.begin, tries.answered = map(timed, steps)
        noting.clear()
        for n in range(rounds):
            noting.append(0.0)
            call(n)
            recorder.flush()
        tries.begin, tries.answered = steps
        recorder.close()
    tries.sinks = ()
    writing: list[float] = []
    for _ in range(20):
        started = time.perf_counter_ns()
        asked = asked_of(seen[0].request, body_of(seen[0].request))
        line_of(event_of(seen[0], asked, place_of(seen[0], "r"), Rules("r", b"key")))
        writing.append((time.perf_counter_ns() - started) / 1000)
    return {
        **_medians(costs),
        "noting_us": round(statistics.median(noting), 2),
        "writing_us": round(statistics.median(writing), 2),
    }


def _medians(costs: tuple[list[float], list[float]]) -> dict[str, float]:
    pairs = Pairs()
    pairs._costs = costs
    return pairs.medians()


def main() -> None:
    """Print every figure as one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=2000, help="pairs measured (default 2000)")
    rounds = parser.parse_args().rounds
    small = recording(ONE_4_KB, rounds)
    figures = {
        "machine": machine(),
        "openai": openai.__version__,
        "rounds": rounds,
        "bound_us": BOUND_US,
        "is_within_bound": small["extra_us"] <= BOUND_US,
        "recording_4_kb_prompt": small,
        "recording_600_kb_prompt": recording(PROMPT_600_KB, max(1, rounds // 20)),
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
