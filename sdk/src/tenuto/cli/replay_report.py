"""What `tenuto replay` prints when it has come to its end."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tenuto.replay.ask import Route
from tenuto.replay.series import Side
from tenuto.report import Row, summarise, table
from tenuto.results import TurnResult, cached_is_known, warm_turns
from tenuto.trace import Trace

_MOST_LAG_S = 0.05


def report(sides: Sequence[Side], traces: Sequence[Trace], *, as_json: bool, route: Route) -> None:
    """Print each side's sums on stdout, and on stderr what makes them doubtful."""
    said = [_summary(side) for side in sides]
    if as_json:
        print(json.dumps(said, indent=1))
    else:
        _print(sides, said)
    for side, one in zip(sides, said, strict=True):
        for doubt in _doubts(side, one, max(trace.block_size for trace in traces), route):
            print(f"tenuto replay: {one['name']}: {doubt}", file=sys.stderr)


def _doubts(side: Side, said: dict[str, Any], block_size: int, route: Route) -> Iterator[str]:
    good = _good(side)
    if said["errors"]:
        of = len(good) + said["errors"]
        yield f"{said['errors']} of {of} calls failed, first {side.first_error}"
    if good and all(turn.rank is None for turn in good):
        yield (
            "the server does not say which rank served: vLLM does with "
            "--middleware tenuto_vllm.asgi.observer.RankObserver"
        )
    if not said["cached_known"]:
        yield (
            "the server does not say how many tokens it had cached, so 0 is no measurement: "
            "vLLM says it with --enable-prompt-tokens-details"
        )
    if warm := warm_turns(good, block_size=side.block_size or block_size):
        yield (
            f"{warm} calls found more in the cache than this run had put there: the server had "
            f"these prompts before{' or from calls that failed' if said['errors'] else ''}. "
            "Restart it, or --reset, or take another --seed and `tenuto compare --allow seed`"
        )
    if said["lag_p99_s"] > _MOST_LAG_S and side.header.concurrency is None:
        yield (
            f"calls left late (p99 above {_MOST_LAG_S * 1000:.0f} ms): this machine is too slow "
            "for so many at once"
        )
    if (of := said["other_lengths"]) and route == "completions":
        yield (
            f"the server counts other tokens in {of} prompts; "
            "--prompt-form tokens --vocab N is exact on every model"
        )


def _print(sides: Sequence[Side], said: Sequence[dict[str, Any]]) -> None:
    rows = [
        Row(_counted(side), side.header.name, summarise(_good(side), ranks=_ranks(side)))
        for side in sides
    ]
    print(table(rows))
    if (repeats := max(side.header.repeats for side in sides)) > 1:
        print(f"sums of {repeats} repeats; each repeat has sessions of its own")
    for one in said:
        print(
            f"{one['name']}: {one['file']}, {one['errors']} errors, "
            f"lag p99 {one['lag_p99_s'] * 1000:,.1f} ms"
        )


def _summary(side: Side) -> dict[str, Any]:
    good = _good(side)
    turns = [*side.kept, *side.done]
    lag_s = sorted(turn.start_s - turn.due_s for turn in turns)
    return {
        "name": side.header.name,
        "file": str(side.path),
        **asdict(summarise(good, ranks=_ranks(side))),
        "cached_known": cached_is_known(good),
        "errors": len(turns) - len(good),
        "lag_p99_s": lag_s[int(0.99 * (len(lag_s) - 1))] if lag_s else 0.0,
        "other_lengths": sum(turn.reachable_tokens is None for turn in good),
    }


def _good(side: Side) -> list[TurnResult]:
    return [turn for turn in (*side.kept, *side.done) if turn.error is None]


def _ranks(side: Side) -> int:
    seen = max((turn.rank or 0 for turn in (*side.kept, *side.done)), default=0) + 1
    return max(side.header.ranks or 1, seen)


def _counted(side: Side) -> str:
    count = len(side.header.traces)
    return next(iter(side.header.traces)) if count == 1 else f"{count} traces"
