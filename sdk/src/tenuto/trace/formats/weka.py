"""Weka (kv-cache-tester, SemiAnalysis): one JSON object a session, subagents inside."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic import ValidationError

from tenuto.trace.formats import weka_derived as derived
from tenuto.trace.formats.weka_rows import RequestRow, SubagentRow, TraceRow, unpacked
from tenuto.trace.formats.weka_write import weka_from_trace
from tenuto.trace.lines import bad, documents
from tenuto.trace.model import Clock, Runs, Session, Trace, Turn
from tenuto.trace.parse import NotJsonError, parsed
from tenuto.trace.problem import Problem, Tell, TraceError
from tenuto.trace.runs import taken
from tenuto.trace.writing import write_lines

MAIN = "main"

# The corpus rounds the start of a call to a whole second.
_ROUNDING_S = 1.0
# One published session of 3,000 calls is some 60 MB in a line.
_LINE_LIMIT = 256 << 20
_SHAPE = re.compile(rb'"(requests|models)"\s*:\s*\[')


def sniff(begin: bytes) -> bool:
    """Whether a file begins with a session's object."""
    return b'"block_size"' in begin and _SHAPE.search(begin) is not None


def read(path: Path, tell: Tell) -> Iterator[Trace]:
    """Yield the traces: one a line, or the whole file where it is one.

    A session that stands twice is read once; another one of the same id gets a number.
    """
    seen: dict[str, dict[bytes, int]] = {}
    for line in documents(path, tell, limit=_LINE_LIMIT):
        try:
            raw = parsed(line.data)
        except NotJsonError as error:
            tell(bad(line, path.name, f"not a Weka trace: {error}", is_json=False))
            continue
        faults: Counter[str] = Counter()
        try:
            trace = trace_from_weka(raw, faults)
        except (ValueError, RecursionError) as error:
            tell(bad(line, path.name, f"not a Weka trace: {_short(error)}", is_json=True))
            continue
        for what, count in faults.items():
            tell(Problem(line.number, f"{count} requests of {trace.id} {what}", path.name))
        same, content = seen.setdefault(trace.id, {}), blake2b(line.data).digest()
        if content in same:
            what = f"session {trace.id} stands in line {same[content]} too; left out"
            tell(Problem(line.number, what, path.name))
            continue
        same[content] = line.number
        if len(same) > 1:
            what = f"another session is called {trace.id}; read as {trace.id}#{len(same)}"
            tell(Problem(line.number, what, path.name))
            extra = {**(trace.extra or {}), "id": trace.id}
            trace = replace(trace, id=f"{trace.id}#{len(same)}", extra=extra)
        yield trace


def write(path: Path, traces: Iterable[Trace]) -> None:
    """Write the packed form, one trace a line; the published one where the name is `.json`."""
    is_single = path.name.removesuffix(".gz").endswith(".json")

    def rows() -> Iterator[bytes]:
        for count, trace in enumerate(traces):
            if is_single and count:
                raise TraceError([Problem(None, "holds one trace; use .jsonl", path.name)])
            row = weka_from_trace(trace, packed=not is_single)
            yield json.dumps(row, separators=(",", ":")).encode()

    write_lines(path, rows())


def trace_from_weka(raw: dict[str, Any], faults: Counter[str] | None = None) -> Trace:
    """Turn one JSON object into the canonical model.

    | inner times         | entry stands at | clock                  |
    |---------------------|-----------------|------------------------|
    | none before entry's | spawn           | `absolute`             |
    | some before entry's | spawn           | `since-spawn`          |
    | some before entry's | end             | `since-spawn-from-end` |

    SemiAnalysis' files have absolute times, kv-cache-tester's count from the spawn.
    There the entry of a completed subagent stands at its end: the entry's time less
    `duration_ms` falls right after a turn of the parent, for every one of them.

    What the model has no word for is kept in `extra`, as far as it differs from what a
    writer would make of the model, so that writing gives back an equal object.

    Args:
        raw: the object.
        faults: takes what is wrong with requests and was put right, and with how many.

    Raises:
        ValueError: when it does not follow the schema, or a request carries no block ids.
    """
    faults = Counter() if faults is None else faults
    row = TraceRow.model_validate(raw)
    raw_rows = cast("list[dict[str, Any]]", raw["requests"])
    calls = [entry for entry in row.requests if isinstance(entry, RequestRow)]
    raw_calls = [entry for entry in raw_rows if entry["type"] != "subagent"]
    reading = _Reading(row.block_size, faults)
    root = Session(MAIN, MAIN, reading.turns(calls, raw_calls, 0.0))
    sessions = [root]
    before = 0
    for entry, raw_entry in zip(row.requests, raw_rows, strict=True):
        if isinstance(entry, RequestRow):
            before += 1
        else:
            sessions.append(_child(reading, entry, raw_entry, sessions, before))
    scope = "global" if row.hash_id_scope == "global" else "run"
    trace = Trace(row.id, row.block_size, tuple(sessions), scope, "weka")
    extra = derived.rest(raw, derived.of_trace(trace), {"requests"})
    return Trace(row.id, row.block_size, tuple(sessions), scope, "weka", extra)


def _free(label: str, taken: Sequence[str]) -> str:
    number, free = 1, label
    while free in taken:
        number += 1
        free = f"{label}#{number}"
    return free


def _child(
    reading: _Reading,
    row: SubagentRow,
    raw: dict[str, Any],
    others: Sequence[Session],
    place: int,
) -> Session:
    parent = others[0].turns
    label = _free(row.agent_id, [session.label for session in others])
    clock, shift_s = _clock(row, parent)
    turns = reading.turns(row.requests, raw.get("requests", []), shift_s)
    spawn_s = turns[0].start_s if turns else row.t
    end_s = max((turn.end_s for turn in turns), default=row.t)
    before = [index for index, turn in enumerate(parent) if turn.start_s <= spawn_s]
    if clock == "absolute" and place <= len(before):
        # There an entry stands at its spawn, and the subagent may have begun much later.
        before = before[:place]
    after = [
        index
        for index, turn in enumerate(parent)
        if turn.start_s > spawn_s and turn.start_s + _ROUNDING_S >= end_s
    ]
    waited = row.status != "async_launched" and bool(after)
    session = Session(
        label=label,
        agent=row.subagent_type,
        turns=turns,
        parent=MAIN,
        spawned_after=before[-1] if before else None,
        joined_before=after[0] if waited else None,
        clock=clock,
    )
    extra = derived.rest(raw, derived.of_session(session), {"requests"}) or {}
    if place != derived.place(session):
        extra[derived.PLACE] = place
    return derived.with_extra(session, extra)


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


class _Reading(NamedTuple):
    """What the requests of a trace are read with."""

    block_size: int
    faults: Counter[str]

    def turns(
        self, calls: Sequence[RequestRow], raw: Sequence[dict[str, Any]], shift_s: float
    ) -> tuple[Turn, ...]:
        """Return the turns of one agent, in the order of time."""
        prompts = unpacked(tuple(calls))
        turns = [
            self._turn(call, runs, row, shift_s)
            for call, runs, row in zip(calls, prompts, raw, strict=True)
        ]
        pairs = itertools.pairwise(turns)
        if late := sum(after.start_s < before.start_s for before, after in pairs):
            self.faults["stand behind a later one; put in order"] += late
            turns.sort(key=lambda turn: turn.start_s)
        return tuple(turns)

    def _turn(self, call: RequestRow, runs: Runs, raw: dict[str, Any], shift_s: float) -> Turn:
        start_s, length_s = _exact(call.t, shift_s), call.api_time or 0.0
        if start_s < 0:
            self.faults["start before time 0; taken as at 0"] += 1
        if min(length_s, call.ttft or 0.0) < 0:
            self.faults["have a negative api_time or ttft; taken as none"] += 1
        start_s, length_s = max(0.0, start_s), max(0.0, length_s)
        # A time to the first token beyond the answer's end cannot be; the row's own stays in extra.
        end_s = round(start_s + length_s, 3)
        first_s = None
        if call.ttft is not None and 0 <= call.ttft <= length_s:
            first_s = min(end_s, round(start_s + call.ttft, 3))
        blocks = taken(runs, call.input_tokens // self.block_size)
        if blocks != runs:
            self.faults["have more blocks than tokens; left without those beyond"] += 1
        turn = Turn(
            blocks=blocks,
            input_tokens=call.input_tokens,
            output_tokens=call.output_tokens,
            start_s=start_s,
            end_s=max(start_s, end_s),
            first_token_s=first_s,
            finish_reason=call.stop,
            model_name=call.model,
        )
        return derived.with_extra(turn, derived.rest(raw, derived.of_turn(turn), derived.BLOCKS))


def _exact(t: float, shift_s: float) -> float:
    return round(t + shift_s, 3) if shift_s else float(t)


def _short(error: Exception) -> str:
    if isinstance(error, ValidationError):
        fault = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
    return str(error)
