"""Mooncake request rows, and AIPerf's `mooncake_trace` with sessions and delays."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tenuto.trace.lines import lines
from tenuto.trace.model import Session, Trace, Turn
from tenuto.trace.problem import Problem, Tell
from tenuto.trace.runs import ids_of, runs_of
from tenuto.trace.writing import write_lines

BLOCK_SIZE = 512
_SHAPE = re.compile(rb'"input_length"\s*:')
# Each row is a whole prompt. AIPerf up to 0.13.0 does not know the field and takes a session's
# later rows for additions to the rows before them.
_WHOLE_PROMPTS = "message_array_with_responses"

Milliseconds = Annotated[float, Field(allow_inf_nan=False)]


class Row(BaseModel):
    """One request; ids of its blocks are the same in the whole file."""

    model_config = ConfigDict(frozen=True)

    input_length: int = Field(ge=0)
    output_length: int = Field(default=0, ge=0)
    hash_ids: list[int] = []
    timestamp: Milliseconds | None = None
    delay: Milliseconds | None = None
    session_id: str | None = None


def sniff(begin: bytes) -> bool:
    """Whether the first line is a request with a length."""
    return _SHAPE.search(begin.lstrip().split(b"\n", 1)[0]) is not None


def read(path: Path, tell: Tell) -> Iterator[Trace]:
    """Yield one trace: the file, whose block ids are global, with a session for each request.

    Rows with a `session_id` are turns of that session. A turn with a `delay` starts that
    many ms after the one before, which has no recorded length.
    """
    turns: dict[str, list[Turn]] = {}
    numbers = itertools.count()
    for line in lines(path, tell):
        try:
            row = Row.model_validate_json(line.data)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            what = f"not a request: {'.'.join(map(str, fault['loc']))}: {fault['msg']}; left out"
            tell(Problem(line.number, what, path.name))
            continue
        label = f"request-{next(numbers)}" if row.session_id is None else row.session_id
        session = turns.setdefault(label, [])
        session.append(_turn(row, session, path.name, line.number, tell))
    if turns:
        name = path.name.removesuffix(".gz").removesuffix(".jsonl")
        sessions = (Session(label, "main", tuple(made)) for label, made in turns.items())
        yield Trace(name, BLOCK_SIZE, tuple(sessions), "global", "mooncake")


def write(path: Path, traces: Iterable[Trace]) -> None:
    """Write AIPerf's form: `timestamp` on a session's first row, `delay` on the others, in ms.

    It has no word for forks: a subagent is a session of its own at its recorded start. Ids
    are given out anew, so that those of two runs do not meet. AIPerf takes 512 tokens for a block
    unless it is told the trace's block size.
    """
    write_lines(path, (_dumped(row) for row in _rows(traces)))


def _turn(row: Row, before: list[Turn], name: str, line: int, tell: Tell) -> Turn:
    last_s = before[-1].end_s if before else 0.0
    if row.timestamp is not None:
        start_s = row.timestamp / 1000
    else:
        start_s = last_s + (row.delay or 0.0) / 1000
    if start_s < 0 or (row.delay or 0.0) < 0:
        tell(Problem(line, "starts at a negative time; taken as no wait", name))
        start_s = max(0.0, last_s)
    # A last block that is not full has an id too; such a block cannot be shared as a whole.
    ids = row.hash_ids[: row.input_length // BLOCK_SIZE]
    return Turn(runs_of(ids), row.input_length, row.output_length, start_s, start_s)


def _rows(traces: Iterable[Trace]) -> Iterator[dict[str, Any]]:
    free = itertools.count()
    everywhere: dict[int, int] = {}
    for trace in traces:
        numbers = everywhere if trace.block_scope == "global" else {}
        for session in trace.sessions:
            last_s: float | None = None
            for turn in session.turns:
                ids: list[int] = []
                for block in ids_of(turn.blocks):
                    number = numbers.get(block)
                    if number is None:
                        number = numbers[block] = next(free)
                    ids.append(number)
                # AIPerf counts a last block that is not full, which nothing else can share.
                missing = -(-turn.input_tokens // trace.block_size) - len(ids)
                ids.extend(next(free) for _ in range(missing))
                if last_s is None:
                    when = {"timestamp": round(turn.start_s * 1000)}
                else:
                    when = {"delay": max(0, round((turn.start_s - last_s) * 1000))}
                last_s = turn.end_s
                yield {
                    "session_id": f"{trace.id}/{session.label}",
                    "input_length": turn.input_tokens,
                    "output_length": turn.output_tokens,
                    "hash_ids": ids,
                    "context_mode": _WHOLE_PROMPTS,
                    **when,
                }


def _dumped(row: dict[str, Any]) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode()
