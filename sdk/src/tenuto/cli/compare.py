"""`tenuto compare`: whether runs of the same traces differ, and what moved."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tenuto.errors import ConfigError
from tenuto.results import Results, read

try:
    import numpy as np
except ImportError as error:
    raise ConfigError("tenuto compare needs numpy: pip install 'tenuto[tools]'") from error

from tenuto.compare import FIELDS, CannotCompare, Comparison, as_json, compare
from tenuto.report.compared import compared_text
from tenuto.report.page import page

_PROBLEMS = 1
_REFUSED = 2
_SHOWN = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Compare result files with the first.

    Returns:
        0 when they were compared, whatever came out; 1 when they were, but lines of a file
        could not be read; 2 when they must not be compared.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(given)
    if unknown := [field for field in options.allow if field not in FIELDS]:
        raise ConfigError(f"--allow knows no {unknown[0]!r}; it takes {', '.join(FIELDS)}")
    paths: list[Path] = options.files
    if len(paths) < 2:
        raise ConfigError("give two result files or more: tenuto compare A B ...")
    runs = [_read(path) for path in paths]
    names = _names(paths, options.name, [run.header.name for run in runs])
    comparisons: list[Comparison] = []
    for name, run in zip(names[1:], runs[1:], strict=True):
        try:
            compared = compare(
                runs[0],
                run,
                rng=np.random.default_rng(options.seed),
                names=(names[0], name),
                gpus=options.gpus,
                gpu_usd_per_hour=options.gpu_usd_per_hour,
                allow=options.allow,
            )
        except CannotCompare as error:
            print(f"tenuto compare: {names[0]} and {name} differ in", file=sys.stderr)
            for reason in error.reasons:
                print(f"  {reason}", file=sys.stderr)
            for hint in _ways_out(error.reasons):
                print(hint, file=sys.stderr)
            return _REFUSED
        comparisons.append(compared)
    if options.html is not None:
        text = page(comparisons, runs, command=shlex.join(["tenuto", "compare", *given]))
        try:
            options.html.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--html {options.html}: {error.strerror or error}") from error
    if options.json:
        said = {"comparisons": [as_json(one) for one in comparisons]}
        print(json.dumps(said, indent=1, allow_nan=False))
    else:
        print(compared_text(comparisons))
    return _told(paths, runs)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tenuto compare", description=__doc__)
    add = parser.add_argument
    add("files", nargs="+", type=Path, metavar="FILE", help="result files; the first is the base")
    add("--json", action="store_true", help="print JSON instead of tables")
    add("--html", type=Path, metavar="OUT.html", help="write a page with pictures")
    add("--gpus", type=_above_zero, metavar="N", help="GPUs of the server (default: the files')")
    add("--gpu-usd-per-hour", type=_above_zero, metavar="USD", help="price, for the cost figures")
    add("--allow", action="append", default=[], metavar="FIELD", help="let it differ; repeatable")
    add("--seed", type=_seed, default=0, help="of the bootstrap (default 0)")
    add("--name", action="append", default=[], help="of a side, in the files' order; repeatable")
    return parser


def _above_zero(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return value


def _seed(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be 0 or above, got {text}")
    return value


def _ways_out(reasons: Sequence[str]) -> Iterator[str]:
    fields = [reason.partition(":")[0] for reason in reasons]
    if allowed := [field for field in fields if field in FIELDS]:
        told = " ".join(f"--allow {field}" for field in allowed)
        yield f"{told} lets {'them' if len(allowed) > 1 else 'it'} pass"
    if len(allowed) < len(fields):
        yield "the same `tenuto replay` with --resume makes calls that failed or are missing again"


def _names(paths: Sequence[Path], given: Sequence[str], said: Sequence[str]) -> list[str]:
    """Return the sides' names: given, else of the headers where those tell them apart."""
    if len(given) > len(paths):
        raise ConfigError(f"{len(given)} names for {len(paths)} files")
    if not given and all(said) and len(set(said)) == len(said):
        return list(said)
    stems = [path.name.removesuffix(".gz").removesuffix(".jsonl") for path in paths]
    names = [*given, *stems[len(given) :]]
    if len(set(names)) < len(names):
        names = [*given, *(str(path) for path in paths[len(given) :])]
    return names


def _read(path: Path) -> Results:
    try:
        return read(path)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; `tenuto replay` writes one") from error
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _told(paths: Sequence[Path], runs: Sequence[Results]) -> int:
    status = 0
    for path, run in zip(paths, runs, strict=True):
        for problem in run.problems[:_SHOWN]:
            place = "" if problem.line is None else f", line {problem.line}"
            print(f"tenuto compare: {path}{place}: {problem.what}", file=sys.stderr)
        if len(run.problems) > _SHOWN:
            print(f"tenuto compare: {path}: {len(run.problems) - _SHOWN} more", file=sys.stderr)
        if any(not problem.is_note for problem in run.problems):
            status = _PROBLEMS
    return status
