"""`tenuto trace`: look at recorded traces, convert and scale them, record through a proxy."""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tenuto.cli.trace_info import Listed, as_json, listing, plot, table
from tenuto.trace import (
    FORMATS,
    Problem,
    Trace,
    TraceError,
    read,
    read_all,
    scale,
    split,
    stats,
    write,
)

_GOOD, _FAULTY, _UNUSABLE = 0, 1, 2
_PROGRESS_EVERY = 100
_LISTED = 20


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand.

    Returns:
        0 when all was well, 1 when files had problems (each is printed with file and line),
        2 for a command that cannot be run.
    """
    given = list(sys.argv[2:] if argv is None else argv)
    # The proxy has a parser of its own, and loads a server.
    if given[:1] == ["proxy"]:
        return importlib.import_module("tenuto.cli.proxy").main(given[1:])
    options = _parser().parse_args(given)
    try:
        return options.run(options)
    except TraceError as error:
        print(f"tenuto trace: {error}", file=sys.stderr)
        return _FAULTY
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"tenuto trace: {error}", file=sys.stderr)
        return _UNUSABLE


def _parser() -> argparse.ArgumentParser:
    rows = [
        f"  {one.name.ljust(12)} {one.about}{'' if one.write else ' (read)'}" for one in FORMATS
    ]
    parser = argparse.ArgumentParser(
        prog="tenuto trace",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(["formats, found by a file's first lines:", *rows]),
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    names = [one.name for one in FORMATS]

    info = commands.add_parser("info", help="how many calls, how long, how far apart, how alike")
    info.add_argument("files", nargs="+", type=Path, metavar="FILE")
    info.add_argument("--format", choices=names, help="of the files (default: found)")
    info.add_argument("--json", action="store_true", help="print JSON in place of tables")
    info.add_argument("--ids", action="store_true", help="list every trace, not only the first")
    info.add_argument("--plot", type=Path, metavar="OUT.svg", help="draw a picture as well")
    info.set_defaults(run=_info)

    convert = commands.add_parser("convert", help="write traces in another format, or scaled")
    convert.add_argument("source", type=Path, metavar="SRC")
    convert.add_argument("target", type=Path, metavar="DST", help="packed when it ends in .gz")
    convert.add_argument("--format", choices=names, help="of SRC (default: found)")
    to = [one.name for one in FORMATS if one.write]
    convert.add_argument(
        "--to", choices=to, default="tenuto", help="format of DST (default tenuto)"
    )
    convert.add_argument("--id", action="append", help="trace to keep (repeatable; default: all)")
    convert.add_argument(
        "--split",
        action="store_true",
        help="make of each trace several that are one root with direct children",
    )
    convert.add_argument(
        "--factor", type=int, default=1, metavar="N", help="divide block size and lengths by this"
    )
    convert.add_argument(
        "--times", type=float, default=1.0, metavar="X", help="multiply all times by this"
    )
    convert.set_defaults(run=_convert)

    commands.add_parser("proxy", help="record what programs send through a proxy", add_help=False)
    return parser


def _info(options: argparse.Namespace) -> int:
    faults = _Faults()
    traces: list[Listed] = []
    found = stats(_listed(_progress(_all(options.files, options.format, faults)), traces))
    if options.plot is not None:
        from tenuto.cli.trace_plot import draw  # noqa: PLC0415  (loads matplotlib)

        draw(found, options.plot)
    if options.json:
        print(json.dumps(as_json(found, traces), indent=1))
    else:
        width = shutil.get_terminal_size().columns
        most = None if options.ids else _LISTED
        parts = [table(found), listing(traces, most), plot(found, width=width)]
        print("\n\n".join(filter(None, parts)))
    return faults.status


def _convert(options: argparse.Namespace) -> int:
    faults = _Faults()
    wanted: list[str] | None = options.id
    there: list[str] = []

    def chosen() -> Iterator[Trace]:
        for trace in read(options.source, format=options.format, on_problem=faults):
            there.append(trace.id)
            if wanted is not None and trace.id not in wanted:
                continue
            for part in split(trace) if options.split else (trace,):
                made = _scaled(part, options)
                yield made
                print(
                    f"{made.id}: {len(made.sessions)} sessions, {made.requests} calls, "
                    f"blocks of {made.block_size} tokens",
                    file=sys.stderr,
                )
        if missing := sorted(set(wanted or ()) - set(there)):
            what = f"holds no trace {', '.join(missing)}; it holds {_some(there)}"
            raise TraceError([Problem(None, what, options.source.name)])

    write(options.target, chosen(), format=options.to)
    return faults.status


def _some(ids: Sequence[str]) -> str:
    more = [f"{len(ids) - _LISTED} more"] if len(ids) > _LISTED else []
    return ", ".join([*ids[:_LISTED], *more]) or "none"


def _scaled(trace: Trace, options: argparse.Namespace) -> Trace:
    try:
        return scale(trace, options.factor, times=options.times)
    except ValueError as error:
        raise TraceError([Problem(None, str(error))]) from error


class _Faults:
    """Prints each problem as it is met; remembers whether one was more than a note."""

    def __init__(self) -> None:
        self.status = _GOOD

    def __call__(self, problem: Problem) -> None:
        print(f"tenuto trace: {problem}", file=sys.stderr)
        if not problem.is_note:
            self.status = _FAULTY


def _all(files: Sequence[Path], format: str | None, faults: _Faults) -> Iterator[Trace]:
    try:
        yield from read_all(files, format=format, on_problem=faults)
    except TraceError as error:
        for problem in error.problems:
            faults(problem)


def _listed(traces: Iterator[Trace], into: list[Listed]) -> Iterator[Trace]:
    for trace in traces:
        into.append(Listed(trace.id, len(trace.sessions), trace.requests))
        yield trace


def _progress(traces: Iterator[Trace]) -> Iterator[Trace]:
    """Say on a terminal how many traces were read."""
    shows = sys.stderr.isatty()
    for count, trace in enumerate(traces, start=1):
        yield trace
        if shows and count % _PROGRESS_EVERY == 0:
            print(f"\r{count} traces", end="", file=sys.stderr, flush=True)
    if shows:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
