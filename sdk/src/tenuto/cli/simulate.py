"""`tenuto simulate`: play traces against set-ups on a virtual clock."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tqdm import tqdm

from tenuto.cli.ending import ending_as_interrupt
from tenuto.cli.simulate_table import refusals, table
from tenuto.results import refuse_existing
from tenuto.simulate import PLACEMENT_NAMES, RETENTION_NAMES, Outcome, Setup, simulate_all
from tenuto.trace import Trace, read_all, uncounted_note
from tenuto_vllm.embedded.latency import Latency

_EPILOG = """\
Sizes and policies take several values: every combination is simulated, over the cores.

  tenuto simulate corpus.jsonl.gz --ranks 8 --tokens-per-rank 1000000 \\
      --placement least-loaded session-sticky --retention lru --json
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        0; 1 for files that cannot be read, and where a set-up could run no call.
    """
    parser = _parser()
    given = parser.parse_args(argv)
    try:
        setups = _setups(given)
        traces = _traces(given.traces, given.limit)
        paths = _paths(given.out, setups)
        refuse_existing(paths or (), ways_out="--overwrite writes it anew", may_go=given.overwrite)
        for path in paths or ():
            path.parent.mkdir(parents=True, exist_ok=True)
        with ending_as_interrupt():
            outcomes = _run(traces, setups, given, paths)
    except MemoryError:
        print(
            "tenuto simulate: no memory for caches, or prompts, of so many tokens", file=sys.stderr
        )
        return 1
    except (OSError, ValueError) as error:
        print(f"tenuto simulate: {error}", file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    else:
        print(table(outcomes, markdown=given.markdown))
    for line in refusals(outcomes):
        print(f"tenuto simulate: {line}", file=sys.stderr)
    return 0 if all(outcome.calls for outcome in outcomes) else 1


def _run(
    traces: list[Trace], setups: list[Setup], given: argparse.Namespace, paths: list[Path] | None
) -> list[Outcome]:
    calls = sum(trace.requests for trace in traces)
    one = len(setups) == 1
    with tqdm(
        total=calls if one else len(setups),
        unit="call" if one else "set-up",
        disable=given.quiet or None,
        file=sys.stderr,
    ) as bar:

        def on_turn(_: object) -> None:
            bar.update()

        outcomes: list[Outcome] = []
        for outcome in simulate_all(
            traces, setups, jobs=given.jobs, out=paths, on_turn=on_turn if one else None
        ):
            outcomes.append(outcome)
            if not one:
                bar.update()
    return outcomes


def _traces(paths: Sequence[Path], limit: int | None) -> list[Trace]:
    traces = list(itertools.islice(read_all(paths), limit))
    if not traces:
        raise ValueError("no trace in what was given")
    if note := uncounted_note(traces):
        print(f"tenuto simulate: {note}", file=sys.stderr)
    return traces


def _paths(out: Path | None, setups: Sequence[Setup]) -> list[Path] | None:
    if out is None:
        return None
    if len(setups) == 1 and out.suffix in {".jsonl", ".gz"}:
        return [out]
    return [
        out / f"{one.ranks}x{one.tokens_per_rank}-{one.placement}-{one.retention}.jsonl"
        for one in setups
    ]


def _setups(given: argparse.Namespace) -> list[Setup]:
    latency = Latency.from_file(given.latency) if given.latency else Latency()
    return [
        Setup(
            ranks=ranks,
            tokens_per_rank=tokens,
            placement=placement,
            retention=retention,
            block_size=given.block_size,
            service=given.service,
            latency=latency,
            mode=given.mode,
            time_scale=given.time_scale,
            gap_cap_s=given.gap_cap,
            live_sessions=given.live_sessions,
            concurrency=given.concurrency,
            max_output_tokens=given.max_output,
            sessions_per_user=given.sessions_per_user,
            hint_sigma=given.hint_sigma,
            seed=given.seed,
        )
        for ranks, tokens, placement, retention in itertools.product(
            given.ranks, given.tokens_per_rank, given.placement, given.retention
        )
    ]


def _parser() -> argparse.ArgumentParser:
    class Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
        pass

    defaults = Setup()
    parser = argparse.ArgumentParser(
        prog="tenuto simulate",
        description="Play traces against the embedded engine on a virtual clock.",
        epilog=_EPILOG,
        formatter_class=Help,
    )
    add = parser.add_argument
    add("traces", nargs="+", type=Path, metavar="TRACE", help="trace files of any known format")
    add("--ranks", nargs="+", type=int, default=[defaults.ranks], metavar="N", help="ranks")
    add(
        "--tokens-per-rank",
        nargs="+",
        type=int,
        default=[defaults.tokens_per_rank],
        metavar="N",
        help="cache of each rank, in tokens",
    )
    add(
        "--placement",
        nargs="+",
        choices=PLACEMENT_NAMES,
        default=[defaults.placement],
        help="where calls go",
    )
    add(
        "--retention",
        nargs="+",
        choices=RETENTION_NAMES,
        default=[defaults.retention],
        help="whose blocks are evicted first",
    )
    add("--block-size", type=int, metavar="N", help="of the engine; the traces' if not given")
    add(
        "--service",
        choices=("modelled", "recorded"),
        default=defaults.service,
        help="how long a call takes: by the latency model, or as recorded whatever it finds",
    )
    add("--latency", type=Path, metavar="FILE", help="latency model, made by `tenuto fit`")
    add("--mode", choices=("closed", "fixed", "asap"), default=defaults.mode, help="when calls go")
    add("--time-scale", type=float, default=1.0, metavar="X", help="share of recorded waits")
    add("--gap-cap", type=float, metavar="S", help="longest recorded wait, in seconds")
    add("--live-sessions", type=int, metavar="N", help="traces that run at once; all by default")
    add("--concurrency", type=int, metavar="N", help="calls in flight at most")
    add("--max-output", type=int, metavar="N", help="cut answers to this many tokens")
    add("--sessions-per-user", type=int, default=4, metavar="N", help="for user-hash")
    add("--hint-sigma", type=float, default=0.7, metavar="X", help="error of the client's hints")
    add("--seed", type=int, default=0, metavar="N", help="of those errors")
    add("--limit", type=int, metavar="N", help="take the first N traces")
    add("--jobs", type=int, metavar="N", help="processes at once; as many as cores by default")
    add("--out", type=Path, metavar="PATH", help="result file, or a folder for several set-ups")
    add("--overwrite", action="store_true", help="replace result files that are there")
    add("--json", action="store_true", help="print JSON")
    add("--markdown", action="store_true", help="print the table as markdown")
    add("--quiet", action="store_true", help="no progress bar")
    return parser
