"""`python -m examples.demo`: agent programs and a recorded session, with tenuto and without.

Starts an engine with two data-parallel ranks, runs both workloads, does the same again
with tenuto on a fresh engine, prints a table, and writes demo.svg and demo.json.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import openai

from examples.demo.engines import EngineStartError
from examples.demo.output import report
from examples.demo.side import Plan, run_side

_SIDES = {"without tenuto": False, "with tenuto": True}


def main(argv: list[str] | None = None) -> int:
    """Run the demo; return the exit status: 0, or 1 with a message on stderr."""
    options = _parser().parse_args(argv)
    # Session ids come from this key. A fixed one gives the same ids everywhere, and
    # the demo then leaves no key file in the user's configuration.
    os.environ.setdefault("TENUTO_KEY", "tenuto-demo-not-a-secret")
    plan = _plan(options.engine, quick=options.quick)
    try:
        results = {}
        for name, marked in _SIDES.items():
            started_s = time.monotonic()

            def tell(line: str, name: str = name, started_s: float = started_s) -> None:
                print(f"[{name}, {time.monotonic() - started_s:5.1f} s] {line}", file=sys.stderr)

            tell(f"starting the {plan.engine} engine")
            results[name] = run_side(plan, marked=marked, tell=tell)
            tell("done")
        print(report(results, plan, options.out))
    except (EngineStartError, ExceptionGroup, openai.OpenAIError, OSError, ValueError) as error:
        for leaf in _leaves(error):
            print(f"demo failed: {type(leaf).__name__}: {leaf}", file=sys.stderr)
        return 1
    return 0


def _plan(engine: str, *, quick: bool) -> Plan:
    if not quick:
        return Plan(engine)
    return Plan(
        engine,
        rounds=2,
        time_scale=0.0,
        prefill_tokens_per_s=200_000.0,
        decode_tokens_per_s=4_000.0,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--engine",
        choices=("embedded", "vllm"),
        default="embedded",
        help="embedded: a modelled engine, no download, under a minute (default); "
        "vllm: a real vLLM with a tiny random model on this machine's CPUs, some minutes",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("out"), help="folder for demo.svg and demo.json"
    )
    parser.add_argument(
        "--quick", action="store_true", help="two rounds, no pauses, faster modelled ranks"
    )
    return parser


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


if __name__ == "__main__":
    sys.exit(main())
