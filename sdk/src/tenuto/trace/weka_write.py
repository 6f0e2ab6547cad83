"""Write traces in the packed Weka form, with absolute times, so that `read_weka` reads them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tenuto.trace.model import Session, Trace, Turn, children_of


def weka_from_trace(trace: Trace) -> dict[str, object]:
    """Return one trace as a packed Weka row: JSON-ready, each fork behind its spawning turn.

    What the canonical model does not hold (model names, stop reasons, content
    types) is not written.

    Raises:
        ValueError: when the trace has not exactly one root, or forks below a fork;
            the format can say neither.
    """
    roots = children_of(trace, None)
    if len(roots) != 1 or len(children_of(trace, roots[0].label)) + 1 != len(trace.sessions):
        message = (
            f"trace {trace.id} is not one root with direct children, all that Weka can say; "
            "write its sessions as traces of their own"
        )
        raise ValueError(message)
    # Each fork goes behind the turn that spawned it: a stable sort keeps the rest in order.
    entries = [
        *((index, row) for index, row in enumerate(_calls(roots[0].turns))),
        *((_position(child), _fork(child)) for child in children_of(trace, roots[0].label)),
    ]
    return {
        "id": trace.id,
        "block_size": trace.block_size,
        "hash_id_scope": "local",
        "requests": [row for _, row in sorted(entries, key=lambda entry: entry[0])],
    }


def write_weka(path: Path, traces: Iterable[Trace]) -> None:
    """Write traces to `path`, one a line, gzip-compressed when it ends in `.gz`.

    The same traces give the same bytes: no time stamp is stored.
    """
    lines = [json.dumps(weka_from_trace(trace), separators=(",", ":")) for trace in traces]
    data = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data, 9, mtime=0) if path.suffix == ".gz" else data)


def _position(child: Session) -> int:
    return -1 if child.spawned_after is None else child.spawned_after


def _fork(session: Session) -> dict[str, Any]:
    start_s = session.turns[0].start_s if session.turns else 0.0
    end_s = max((turn.end_s for turn in session.turns), default=start_s)
    return {
        "t": start_s,
        "type": "subagent",
        "agent_id": session.label,
        "subagent_type": session.agent,
        "duration_ms": round((end_s - start_s) * 1000),
        "status": "async_launched" if session.joined_before is None else "completed",
        "requests": _calls(session.turns),
    }


def _calls(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    last: tuple[int, ...] = ()
    for turn in turns:
        kept = _shared(last, turn.block_ids)
        rows.append(
            {
                "t": turn.start_s,
                "type": "n",
                "in": turn.input_tokens,
                "out": turn.output_tokens,
                "api_time": round(turn.end_s - turn.start_s, 3),
                "hk": kept,
                "hr": _runs(turn.block_ids[kept:]),
            }
        )
        last = turn.block_ids
    return rows


def _shared(left: Sequence[int], right: Sequence[int]) -> int:
    for index, (ours, theirs) in enumerate(zip(left, right, strict=False)):
        if ours != theirs:
            return index
    return min(len(left), len(right))


def _runs(ids: Sequence[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for block in ids:
        if runs and sum(runs[-1]) == block:
            runs[-1][1] += 1
        else:
            runs.append([block, 1])
    return runs
