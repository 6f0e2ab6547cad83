"""The options of `tenuto replay`."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

_EPILOG = """\
Several targets are interleaved, repeat by repeat, so that a drift of the machine meets all
alike; each has a result file of its own, which `tenuto compare` takes.

  tenuto replay trace.jsonl.gz --target http://localhost:8000 --repeat 3 --out a.jsonl
  tenuto replay trace.jsonl.gz --out runs --repeat 3 --mode asap \\
      --target embedded:placement=session-sticky --target embedded:placement=round-robin
"""


def parser() -> argparse.ArgumentParser:
    """Return the command's parser."""

    class Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
        pass

    made = argparse.ArgumentParser(
        prog="tenuto replay",
        description="Play recorded traces against servers, and write down what each call met.",
        epilog=_EPILOG,
        formatter_class=Help,
    )
    _what(made)
    _when(made)
    _calls(made)
    _engine(made)
    return made


def _what(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    add("traces", nargs="+", type=Path, metavar="TRACE", help="trace files of any known format")
    add(
        "--target",
        action="append",
        required=True,
        metavar="URL|embedded",
        help="a server, or an engine that is started: embedded[:placement=NAME,ranks=N,...]",
    )
    add(
        "--out",
        type=Path,
        metavar="PATH",
        help="result file, or a folder; another file in runs/ each time if not given",
    )
    add("--repeat", type=_count, default=1, metavar="N", help="how many times")
    add("--name", action="append", metavar="NAME", help="of each target, in tables and files")
    add("--factor", type=_count, default=1, metavar="N", help="divide lengths by N")
    add("--id", action="append", metavar="ID", help="only traces of this id")
    add("--limit", type=_count, metavar="N", help="take the first N traces")
    add("--seed", type=int, default=0, metavar="N", help="of prompts and ids")
    add("--resume", action="store_true", help="go on where the result files end")
    add("--overwrite", action="store_true", help="replace result files that are there")
    add("--json", action="store_true", help="print JSON")
    add("--quiet", action="store_true", help="no progress bar")


def _when(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    add(
        "--mode",
        choices=("closed", "fixed", "asap"),
        default="closed",
        help="closed keeps the recorded waits between calls, fixed the recorded times",
    )
    add("--time-scale", type=_from_zero, default=1.0, metavar="X", help="share of recorded waits")
    add("--gap-cap", type=_from_zero, metavar="S", help="longest recorded wait, in seconds")
    add("--live-sessions", type=_count, metavar="N", help="traces that run at once; all if none")
    add("--concurrency", type=_count, metavar="N", help="calls in flight at most")


def _calls(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    add("--model", metavar="NAME", help="served model name; the server's first if not given")
    add("--max-output", type=_count, metavar="N", help="cut answers to this many tokens")
    add("--route", choices=("completions", "chat"), default="completions", help="of the API")
    add(
        "--prompt-form",
        choices=("text", "tokens"),
        default="text",
        help="text is exact where a byte is a token, token ids with any model",
    )
    add("--vocab", type=_count, default=32_000, metavar="N", help="token ids are below this")
    add("--dialect", metavar="NAME", help="how calls say whose they are; vllm by default")
    add("--unmarked", action="store_true", help="calls do not say whose they are")
    add(
        "--cache-bust",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="each repeat's prompts share nothing with another's",
    )
    add("--reset", action="store_true", help="empty the prefix cache before each repeat")
    add("--new-connections", action="store_true", help="a connection for each call")
    add("--timeout", type=_above_zero, default=600.0, metavar="S", help="of a call")
    add("--fail-fast", action="store_true", help="stop at the first error")
    add("--gpus", type=_above_zero, metavar="N", help="that a server has; its ranks if not given")


def _engine(made: argparse.ArgumentParser) -> None:
    add = made.add_argument
    add("--ranks", type=_count, metavar="N", help="data-parallel ranks; 2 of an embedded engine")
    add("--block-size", type=_count, metavar="N", help="of the cache; the traces' if not given")
    group = made.add_argument_group("embedded engine")
    add = group.add_argument
    add("--blocks", type=_count, metavar="N", help="of each rank; a million tokens if not given")
    add("--placement", metavar="NAME", help="where calls go")
    add("--retention", metavar="NAME", help="whose blocks are evicted first")
    add("--extension", action="store_true", help="with the server extension")
    add("--latency", metavar="FILE", help="latency model, made by `tenuto fit`")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)


def _above_zero(text: str) -> float:
    value = _from_zero(text)
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return value


def _from_zero(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value >= 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text!r} is no finite number from 0 on")
    return value
