"""Mooncake request rows, and AIPerf's `mooncake_trace` with sessions and delays."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from tenuto.trace.event import MOST_BLOCKS, BlockId, BlockSize, Seconds, Tokens
from tenuto.trace.lines import bad, lines
from tenuto.trace.model import Runs, Session, Trace, Turn
from tenuto.trace.parse import validated
from tenuto.trace.problem import Problem, Tell, TraceError
from tenuto.trace.runs import ids_of, runs_of, taken
from tenuto.trace.writing import write_lines

BLOCK_SIZE = 512
_SHAPE = re.compile(rb'"input_length"\s*:')
# Each row is a whole prompt. AIPerf up to 0.13.0 does not know the field and takes a session's
# later rows for additions to the rows before them.
_WHOLE_PROMPTS = "message_array_with_responses"


class Row(BaseModel):
    """One request; ids of its blocks are the same in the whole file."""

    model_config = ConfigDict(frozen=True)

    input_length: Tokens
    output_length: Tokens = 0
    hash_ids: list[BlockId] = []
    timestamp: Seconds | None = None
    delay: Seconds | None = None
    session_id: str | None = None
    trace_block_size: BlockSize | None = None


_ROW = TypeAdapter(Row)


class _Asked(NamedTuple):
    """A row's request before it is known how many tokens a block has."""

    start_s: float
    row: Row
    runs: Runs
    line: int


def sniff(begin: bytes) -> bool:
    """Whether it has a request with a length."""
    return _SHAPE.search(begin) is not None


def read(path: Path, tell: Tell) -> Iterator[Trace]:
    """Yield one trace: the file, whose block ids are global, with a session for each request.

    Rows with a `session_id` are turns of that session. A turn with a `delay` starts that
    many ms after the one before, which has no recorded length.
    """
    asked: dict[str, list[_Asked]] = {}
    numbers = itertools.count()
    for line in lines(path, tell):
        try:
            row = validated(_ROW, line.data)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            what = f"not a request: {'.'.join(map(str, fault['loc']))}: {fault['msg']}"
            tell(bad(line, path.name, what, is_json=fault["type"] != "json_invalid"))
            continue
        label = f"request-{next(numbers)}" if row.session_id is None else row.session_id
        session = asked.setdefault(label, [])
        session.append(_asked(row, session, path.name, line.number, tell))
    if asked:
        rows = [one for session in asked.values() for one in session]
        size = _block_size(rows, path.name, tell)
        name = path.name.removesuffix(".gz").removesuffix(".jsonl")
        sessions = (
            Session(label, "main", _turns(session, size, path.name, tell))
            for label, session in asked.items()
        )
        yield Trace(name, size, tuple(sessions), "global", "mooncake")


def write(path: Path, traces: Iterable[Trace]) -> None:
    """Write AIPerf's form: `timestamp` on a session's first row, `delay` on the others, in ms.

    It has no word for forks: a subagent is a session of its own at its recorded start. Ids
    are given out anew, so that those of two runs do not meet. AIPerf takes 512 tokens for a block
    unless it is told the trace's block size, which stands in `trace_block_size`.
    """
    write_lines(path, (_dumped(row) for row in _rows(traces)))


def _asked(row: Row, before: list[_Asked], name: str, line: int, tell: Tell) -> _Asked:
    last_s = before[-1].start_s if before else 0.0
    if row.timestamp is not None:
        start_s = row.timestamp / 1000
    else:
        start_s = last_s + (row.delay or 0.0) / 1000
    if start_s < 0 or (row.delay or 0.0) < 0:
        tell(Problem(line, "starts at a negative time; taken as no wait", name))
        start_s = max(0.0, last_s)
    runs = runs_of(row.hash_ids)
    return _Asked(start_s, row.model_copy(update={"hash_ids": []}), runs, line)


def _block_size(asked: Sequence[_Asked], name: str, tell: Tell) -> int:
    """Return how many tokens a block has: as a row says, else as lengths and counts of ids do.

    A prompt of n ids has more than n - 1 blocks and no more than n. It is Mooncake's own size
    where that is so of half the prompts, else a power of two where there is a choice.
    """
    said = Counter(one.row.trace_block_size for one in asked if one.row.trace_block_size)
    if said:
        return said.most_common(1)[0][0]
    prompts = [(one.row.input_length, sum(length for _, length in one.runs)) for one in asked]
    cut = [(length, count) for length, count in prompts if length and count]
    if 2 * sum(-(-length // BLOCK_SIZE) == count for length, count in cut) >= len(cut):
        return BLOCK_SIZE
    least = max(-(-length // count) for length, count in cut)
    most = min(((length - 1) // (count - 1) for length, count in cut if count > 1), default=least)
    if least > most:
        what = "its prompts have ids for blocks of no one size; taken as of 512 tokens"
        tell(Problem(None, what, name))
        return BLOCK_SIZE
    power = 1 << (most.bit_length() - 1)
    return power if power >= least else least


def _turns(asked: list[_Asked], size: int, name: str, tell: Tell) -> tuple[Turn, ...]:
    for before, after in itertools.pairwise(asked):
        if after.start_s < before.start_s:
            what = f"starts before the session's request in line {before.line}; put in order"
            tell(Problem(after.line, what, name))
    turns: list[Turn] = []
    for start_s, row, runs, _ in sorted(asked, key=lambda one: one.start_s):
        # A last block that is not full has an id too; such a block cannot be shared as a whole.
        blocks = taken(runs, row.input_length // size)
        turns.append(Turn(blocks, row.input_length, row.output_length, start_s, start_s))
    return tuple(turns)


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
                if missing > MOST_BLOCKS:
                    what = f"trace {trace.id} has a prompt of {turn.input_tokens} tokens, too long"
                    raise TraceError([Problem(None, what)])
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
                    "trace_block_size": trace.block_size,
                    "context_mode": _WHOLE_PROMPTS,
                    **when,
                }


def _dumped(row: dict[str, Any]) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode()
