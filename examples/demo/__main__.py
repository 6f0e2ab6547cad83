"""`python -m examples.demo`: record agent programs, replay them with tenuto and without.

Starts an engine with two data-parallel ranks and records what three agent programs ask of it;
plays that and a recorded coding session against a fresh engine, once without tenuto and once
with it; compares both, and writes demo.svg, demo.html and the files behind them.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import openai

from examples.demo.engines import EngineStartError
from examples.demo.steps import SIDES, Plan, compare, record, replay


def main(argv: list[str] | None = None) -> int:
    """Run the demo; return the exit status: 0, or 1 with a message on stderr."""
    options = _parser().parse_args(argv)
    # Session ids come from this key. A fixed one gives the same ids everywhere, and
    # the demo then leaves no key file in the user's configuration.
    os.environ.setdefault("TENUTO_KEY", "tenuto-demo-not-a-secret")
    plan = _plan(options.engine, options.out, quick=options.quick)
    plan.out.mkdir(parents=True, exist_ok=True)
    try:
        trace = record(plan, _teller("recording"))
        for side in SIDES:
            replay(plan, trace, side, _teller(side))
        compare(plan)
    except (
        *(EngineStartError, ExceptionGroup, openai.OpenAIError),
        *(OSError, RuntimeError, ValueError),
    ) as error:
        for leaf in _leaves(error):
            print(f"demo failed: {type(leaf).__name__}: {leaf}", file=sys.stderr)
        return 1
    print(f"\n{plan.out}/demo.svg and {plan.out}/demo.html are written.")
    return 0


def _teller(name: str) -> Callable[[str], None]:
    started_s = time.monotonic()

    def tell(line: str) -> None:
        print(f"[{name}, {time.monotonic() - started_s:5.1f} s] {line}", file=sys.stderr)

    tell("starting the engine")
    return tell


def _plan(engine: str, out: Path, *, quick: bool) -> Plan:
    if not quick:
        return Plan(engine, out)
    return Plan(
        engine,
        out,
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
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for what is written")
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
