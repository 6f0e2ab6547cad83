"""Simulate a corpus of traces: placement, retention, and what the simulator itself costs.

    python -m benchmarks.simulator CORPUS

Runs `tenuto simulate` as anybody would and writes docs/measurements/simulator.json;
`python -m benchmarks.simulator_page` makes docs/simulations.md of it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from tenuto.trace import read

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
SIZES = (10, 100, None)


def main(argv: list[str] | None = None) -> int:
    """Run everything; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    corpus = parser.parse_args(argv).corpus
    traces = list(read(corpus))
    data = {
        "machine": machine(),
        "corpus": corpus.name,
        "sessions": len(traces),
        "forking": sum(len(trace.sessions) > 1 for trace in traces),
        "placement": simulated(corpus, PLACEMENT),
        "retention": simulated(corpus, RETENTION),
        "cost": [cost(corpus, size) for size in SIZES],
    }
    FILE.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 0


def simulated(corpus: Path, options: list[str]) -> list[dict[str, Any]]:
    """Return the outcomes of a command."""
    return json.loads(_run(corpus, [*COMMON, *options])[0])


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
