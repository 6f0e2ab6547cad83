"""Read Weka (kv-cache-tester) traces: published JSON, JSON lines, packed JSON lines."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from pydantic import ValidationError

from tenuto.trace.model import Clock, Session, Trace, Turn
from tenuto.trace.weka_rows import RequestRow, SubagentRow, TraceRow, unpacked

MAIN = "main"

# The corpus rounds the start of a call to a whole second.
_ROUNDING_S = 1.0


def read_weka(path: Path) -> Iterator[Trace]:
    """Yield the traces of a file: `.json` holds one, `.jsonl` one a line; `.gz` of either.

    Raises:
        ValueError: when a trace does not follow the schema; names file and line.
    """
    with _opened(path) as file:
        whole = path.name.removesuffix(".gz").endswith(".json")
        for number, text in enumerate([file.read()] if whole else file, start=1):
            if not text.strip():
                continue
            try:
                trace = trace_from_weka(TraceRow.model_validate_json(text))
            except (ValidationError, ValueError) as error:
                message = f"{path.name}, line {number}: not a Weka trace: {error}"
                raise ValueError(message) from error
            yield trace


def trace_from_weka(row: TraceRow) -> Trace:
    """Turn one checked row into the canonical model.

    | inner times         | entry stands at | clock                  |
    |---------------------|-----------------|------------------------|
    | none before entry's | spawn           | `absolute`             |
    | some before entry's | spawn           | `since-spawn`          |
    | some before entry's | end             | `since-spawn-from-end` |

    SemiAnalysis' files have absolute times, kv-cache-tester's count from the spawn.
    There the entry of a completed subagent stands at its end: the entry's time less
    `duration_ms` falls right after a turn of the parent, for every one of them.

    Raises:
        ValueError: when a request carries no block ids.
    """
    calls = tuple(entry for entry in row.requests if isinstance(entry, RequestRow))
    root = Session(MAIN, MAIN, _turns(calls, 0.0))
    forks = [entry for entry in row.requests if isinstance(entry, SubagentRow)]
    children = [_child(fork, root.turns) for fork in forks]
    return Trace(row.id, row.block_size, (root, *children))


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def _child(row: SubagentRow, parent: Sequence[Turn]) -> Session:
    clock, shift_s = _clock(row, parent)
    turns = _turns(row.requests, shift_s)
    spawn_s = turns[0].start_s if turns else row.t
    end_s = max((turn.end_s for turn in turns), default=row.t)
    before = [index for index, turn in enumerate(parent) if turn.start_s <= spawn_s]
    after = [
        index
        for index, turn in enumerate(parent)
        if turn.start_s > spawn_s and turn.start_s + _ROUNDING_S >= end_s
    ]
    waited = row.status != "async_launched" and bool(after)
    return Session(
        label=row.agent_id,
        agent=row.subagent_type,
        turns=turns,
        parent=MAIN,
        spawned_after=before[-1] if before else None,
        joined_before=after[0] if waited else None,
        clock=clock,
    )


def _clock(row: SubagentRow, parent: Sequence[Turn]) -> tuple[Clock, float]:
    """Return the rule for a subagent's times and the seconds to add to them."""
    first_s = min((call.t for call in row.requests), default=row.t)
    if first_s >= row.t:
        return "absolute", 0.0
    if row.duration_ms is not None:
        spawn_s = row.t - row.duration_ms / 1000
        spawning = [turn for turn in parent if turn.start_s <= row.t]
        # Were the entry at the spawn, going back by the whole duration would
        # mostly land before the turn that spawned it, which cannot be.
        if not spawning or spawn_s >= spawning[-1].start_s:
            return "since-spawn-from-end", spawn_s
    return "since-spawn", row.t


def _turns(calls: tuple[RequestRow, ...], shift_s: float) -> tuple[Turn, ...]:
    return tuple(
        Turn(
            block_ids=ids,
            input_tokens=call.input_tokens,
            output_tokens=call.output_tokens,
            start_s=round(call.t + shift_s, 3),
            end_s=round(call.t + shift_s + (call.api_time or 0.0), 3),
        )
        for call, ids in zip(calls, unpacked(calls), strict=True)
    )
