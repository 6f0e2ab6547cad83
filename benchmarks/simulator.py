"""Simulate a corpus of traces: placement, retention, and what the simulator itself costs.

    python -m benchmarks.simulator CORPUS

Runs `tenuto simulate` as anybody would and writes docs/measurements/simulator.json;
`python -m benchmarks.simulator_page` makes docs/simulations.md of it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from tenuto.replay import Reach
from tenuto.trace import Session, Trace, read, write

FILE = Path(__file__).parents[1] / "docs/measurements/simulator.json"
COMMON = ["--ranks", "8", "--live-sessions", "64", "--gap-cap", "300", "--service", "recorded"]
PLACEMENT = [
    *("--tokens-per-rank", "500000", "1000000", "2000000", "4000000", "8000000"),
    *("--placement", "round-robin", "least-loaded", "user-hash", "session-hash", "agent-hash"),
    *("session-sticky", "subagent-keyed", "prefix-oracle", "tenuto"),
]
RETENTION = [
    *("--tokens-per-rank", "500000", "1000000", "1500000"),
    *("--placement", "session-sticky", "--retention", "lru", "slru", "drop-final", "tool-wait"),
    *("expected-return", "hinted", "belady"),
]
MANY = [
    *("--ranks", "64", "--live-sessions", "415", "--gap-cap", "300", "--service", "recorded"),
    *("--tokens-per-rank", "500000", "1000000", "2000000"),
    *("--placement", "session-sticky", "prefix-oracle", "tenuto"),
]
FORKS = [
    *("--tokens-per-rank", "500000", "1000000", "2000000"),
    *("--placement", "agent-hash", "session-sticky", "subagent-keyed", "prefix-oracle", "tenuto"),
]
FORKING_SHARE = 0.44
RESAMPLED = 300
SIZES = (10, 100, None)


def main(argv: list[str] | None = None) -> int:
    """Run everything; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    corpus = parser.parse_args(argv).corpus
    traces = list(read(corpus))
    with tempfile.TemporaryDirectory() as folder:
        forking = Path(folder, "forking.jsonl")
        write(forking, resampled(traces))
        forks = simulated(forking, [*COMMON, *FORKS])
    data = {
        "machine": machine(),
        "corpus": corpus.name,
        "sessions": len(traces),
        "forking": sum(len(trace.sessions) > 1 for trace in traces),
        "placement": simulated(corpus, [*COMMON, *PLACEMENT]),
        "retention": simulated(corpus, [*COMMON, *RETENTION]),
        "many_ranks": simulated(corpus, MANY),
        "forks": forks,
        "largest_session": largest(traces),
        "cost": [cost(corpus, size) for size in SIZES],
    }
    FILE.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 0


def simulated(corpus: Path, options: list[str]) -> list[dict[str, Any]]:
    """Return the outcomes of a command."""
    return json.loads(_run(corpus, options)[0])


def resampled(traces: Sequence[Trace]) -> Iterator[Trace]:
    """Yield traces drawn with replacement, 44 % of them forking, as in AgentX traffic."""
    draw = random.Random(0)
    forking = [trace for trace in traces if len(trace.sessions) > 1]
    others = [trace for trace in traces if len(trace.sessions) == 1]
    for number in range(RESAMPLED):
        trace = draw.choice(forking if draw.random() < FORKING_SHARE else others)
        yield replace(trace, id=f"{trace.id}-{number}")


def largest(traces: Sequence[Trace]) -> int:
    """Return the tokens that one session of all computes at least, on whichever rank it is."""
    return max(computed_at_least(trace, session) for trace in traces for session in trace.sessions)


def computed_at_least(trace: Trace, session: Session) -> int:
    """Return what a session computes with a cache without end of its own."""
    reach = Reach()
    return sum(
        turn.input_tokens - reach.sent(0, turn.blocks, turn.input_tokens, trace.block_size, None)[0]
        for turn in session.turns
    )


def cost(corpus: Path, size: int | None) -> dict[str, Any]:
    """Return seconds and memory of one set-up on one core, reading the traces included."""
    limit = [] if size is None else ["--limit", str(size)]
    options = ["--tokens-per-rank", "1000000", "--jobs", "1", *limit]
    text, seconds, peak_kb = _run(corpus, [*COMMON, *options])
    (outcome,) = json.loads(text)
    return {
        "sessions": size,
        "calls": outcome["calls"],
        "prompt_tokens": outcome["prompt_tokens"],
        "seconds": round(seconds, 2),
        "peak_mb": round(peak_kb / 1000),
    }


def _run(corpus: Path, options: list[str]) -> tuple[str, float, int]:
    command = [sys.executable, "-m", "tenuto.cli", "simulate", str(corpus), *options, "--json"]
    started_s = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None:
            raise RuntimeError("no output to read")
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"tenuto simulate ended with {process.returncode}")
    return text, time.monotonic() - started_s, usage.ru_maxrss


if __name__ == "__main__":
    sys.exit(main())
