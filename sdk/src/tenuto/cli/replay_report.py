"""What `tenuto replay` prints when it has come to its end."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tenuto.replay.ask import Route
from tenuto.replay.series import Side
from tenuto.report import Row, summarise, table
from tenuto.results import TurnResult

_MOST_LAG_S = 0.05


def report(sides: Sequence[Side], *, as_json: bool, route: Route) -> None:
    """Print each side's sums on stdout, and on stderr what makes them doubtful."""
    said = [_summary(side) for side in sides]
    if as_json:
        print(json.dumps(said, indent=1))
    else:
        _print(sides, said)
    for side, one in zip(sides, said, strict=True):
        if one["lag_p99_s"] > _MOST_LAG_S and side.header.concurrency is None:
            print(
                f"tenuto replay: {one['name']}: calls left late (p99 above "
                f"{_MOST_LAG_S * 1000:.0f} ms): this machine is too slow for so many at once",
                file=sys.stderr,
            )
        if (of := one["other_lengths"]) and route == "completions":
            print(
                f"tenuto replay: {one['name']}: the server counts other tokens in {of} prompts; "
                "--prompt-form tokens --vocab N is exact on every model",
                file=sys.stderr,
            )


def _print(sides: Sequence[Side], said: Sequence[dict[str, Any]]) -> None:
    rows = [
        Row(_counted(side), side.header.name, summarise(_good(side), ranks=_ranks(side)))
        for side in sides
    ]
    print(table(rows))
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
