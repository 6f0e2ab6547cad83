"""Simulate a corpus of traces: placement, retention, and what the simulator itself costs.

    python -m benchmarks.simulator CORPUS [PART ...]

Runs `tenuto simulate` as anybody would and writes docs/measurements/simulator.json;
`python -m benchmarks.simulator_page` makes docs/simulations.md of it. With parts, the others
stay as they are in the file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.simulator_corpora import inheriting, known_of, resampled
from benchmarks.simulator_skew import skews
from tenuto.trace import Trace, read, write

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
EXACT = [
    *("--tokens-per-rank", "500000", "1000000", "1500000"),
    *("--placement", "session-sticky", "--retention", "hinted", "--hint-sigma", "0"),
]
MANY = [
    *("--ranks", "64", "--live-sessions", "415", "--gap-cap", "300", "--service", "recorded"),
    *("--tokens-per-rank", "500000", "1000000", "2000000"),
    *("--placement", "session-sticky", "prefix-oracle", "tenuto"),
]
MORE = [
    *("--ranks", "64", "--live-sessions", "512", "--gap-cap", "300", "--service", "recorded"),
    *("--block-size", "256", "--tokens-per-rank", "500000", "1000000", "2000000"),
    *("--placement", "session-sticky", "tenuto"),
]
FORKS = [
    *("--tokens-per-rank", "500000", "1000000", "2000000"),
    *("--placement", "agent-hash", "session-sticky", "subagent-keyed", "prefix-oracle", "tenuto"),
]
MORE_TIMES = 4
FORKING_SHARE = 0.44
RESAMPLED = 300
SIZES = (10, 100, None)


def main(argv: list[str] | None = None) -> int:
    """Run everything; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("parts", nargs="*", metavar="PART", help="what to measure; all by default")
    given = parser.parse_args(argv)
    traces = list(read(given.corpus))
    with tempfile.TemporaryDirectory() as folder:
        parts = _parts(given.corpus, traces, Path(folder))
        if unknown := set(given.parts) - set(parts):
            parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
        data: dict[str, Any] = {}
        if given.parts:
            data = json.loads(FILE.read_text(encoding="utf-8"))
        data |= {
            "machine": machine(),
            "corpus": given.corpus.name,
            "sessions": len(traces),
            "forking": sum(len(trace.sessions) > 1 for trace in traces),
            "known": known_of(traces, 64),
        }
        for name in given.parts or parts:
            started_s = time.monotonic()
            data[name] = parts[name]()
            print(f"{name}: {time.monotonic() - started_s:.0f} s", file=sys.stderr, flush=True)
    FILE.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 0


def _parts(corpus: Path, traces: list[Trace], folder: Path) -> dict[str, Callable[[], Any]]:
    """Return what can be measured, by its name in the file."""
    more, forks, inherits = (folder / f"{name}.jsonl.gz" for name in ("more", "forks", "inherits"))
    write(more, resampled(traces, MORE_TIMES * len(traces)))
    forking = list(resampled(traces, RESAMPLED, FORKING_SHARE))
    write(forks, forking)
    write(inherits, map(inheriting, forking))
    return {
        "placement": lambda: simulated(corpus, [*COMMON, *PLACEMENT]),
        "retention": lambda: simulated(corpus, [*COMMON, *RETENTION]),
        "retention_exact": lambda: simulated(corpus, [*COMMON, *EXACT]),
        "many_ranks": lambda: simulated(corpus, MANY),
        "more_sessions": lambda: simulated(more, MORE),
        "forks": lambda: simulated(forks, [*COMMON, *FORKS]),
        "inherits": lambda: simulated(inherits, [*COMMON, *FORKS]),
        "skews": skews,
        "cost": lambda: [cost(corpus, size) for size in SIZES],
    }


def simulated(corpus: Path, options: list[str]) -> list[dict[str, Any]]:
    """Return the outcomes of a command."""
    return json.loads(_run(corpus, options)[0])


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
