"""What a Weka row says, as far as it follows from the model, and what is left over. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from tenuto.trace.model import Session, Trace, Turn

BLOCKS = frozenset({"hash_ids", "hk", "hr"})
PLACE = "entry_place"
"""How many of the parent's calls stand before a subagent's entry, where that is not the usual."""
_ABSENT = "absent"

_T = TypeVar("_T", Turn, Session)


def rest(
    raw: Mapping[str, Any], known: Mapping[str, Any], without: Collection[str]
) -> dict[str, Any] | None:
    """Return what a row says beyond `known`; None for nothing.

    Args:
        raw: the row.
        known: what a writer would say.
        without: keys that are taken care of elsewhere.
    """
    more = {
        key: value
        for key, value in raw.items()
        if key not in without and (key not in known or known[key] != value)
    }
    if absent := [key for key in known if key not in raw]:
        more[_ABSENT] = absent
    return more or None


def joined(known: Mapping[str, Any], extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the row of which `extra` is the rest."""
    if not extra:
        return dict(known)
    row = {**known, **extra}
    for key in (*extra.get(_ABSENT, ()), _ABSENT, PLACE):
        row.pop(key, None)
    return row


def with_extra(part: _T, extra: dict[str, Any] | None) -> _T:
    """Return the same part with what its row says beyond it."""
    return replace(part, extra=extra) if extra else part


def of_trace(trace: Trace) -> dict[str, Any]:
    """Return a trace's own fields."""
    return {
        "id": trace.id,
        "block_size": trace.block_size,
        "hash_id_scope": "global" if trace.block_scope == "global" else "local",
    }


def of_session(session: Session) -> dict[str, Any]:
    """Return the fields of a subagent's entry, at its spawn and with absolute times."""
    start_s = session.turns[0].start_s if session.turns else 0.0
    end_s = max((turn.end_s for turn in session.turns), default=start_s)
    return {
        "t": start_s,
        "type": "subagent",
        "agent_id": session.label,
        "subagent_type": session.agent,
        "duration_ms": round((end_s - start_s) * 1000),
        "status": "async_launched" if session.joined_before is None else "completed",
    }


def of_turn(turn: Turn) -> dict[str, Any]:
    """Return a request's fields, without its blocks."""
    row: dict[str, Any] = {
        "t": turn.start_s,
        "type": "n" if turn.first_token_s is None else "s",
        "in": turn.input_tokens,
        "out": turn.output_tokens,
        "api_time": round(turn.end_s - turn.start_s, 3),
    }
    if turn.first_token_s is not None:
        row["ttft"] = round(turn.first_token_s - turn.start_s, 3)
    if turn.model_name is not None:
        row["model"] = turn.model_name
    if turn.finish_reason is not None:
        row["stop"] = turn.finish_reason
    return row


def place(session: Session) -> int:
    """Return how many of the parent's calls stand before an entry: all up to the spawning one."""
    return 0 if session.spawned_after is None else session.spawned_after + 1
