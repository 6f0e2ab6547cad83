"""A recorded turn as the engine's call: what its client would say, and what comes next. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tenuto.replay.schedule import CallRef
from tenuto.simulate.setup import Setup
from tenuto.trace import Session, Trace, Turn
from tenuto.trace.runs import shared
from tenuto_vllm.embedded.core import Call
from tenuto_vllm.retention import Wait

_TOOL = frozenset({"tool_use", "tool_calls", "function_call"})
_USER = frozenset({"end_turn", "stop", "stop_sequence", "length", "max_tokens", "completed"})


def call_of(
    traces: Sequence[Trace], ref: CallRef, setup: Setup, keys: NDArray[np.int64], block_size: int
) -> Call:
    """Return the call of a recorded turn.

    Args:
        traces: what is played.
        ref: the turn.
        setup: how it is played.
        keys: of its prompt's blocks.
        block_size: tokens in a block of the engine.
    """
    trace = traces[ref.trace]
    session = trace.sessions[ref.session]
    turn = session.turns[ref.turn]
    following = session.turns[ref.turn + 1] if ref.turn + 1 < len(session.turns) else None
    gap_s = _gap_s(turn, following, setup)
    output_tokens = max(1, turn.output_tokens)
    if setup.max_output_tokens is not None:
        output_tokens = min(output_tokens, setup.max_output_tokens)
    wait = _wait(turn)
    return Call(
        keys=keys,
        prompt_tokens=max(1, turn.input_tokens),
        output_tokens=output_tokens,
        session=f"{trace.id}/{session.label}",
        run=trace.id,
        user=f"user-{ref.trace // setup.sessions_per_user}",
        parent=_parent(trace, session),
        turn=ref.turn,
        inherits=session.fork == "inherit",
        keep=_kept(session.turns[ref.turn - 1] if ref.turn else None, turn, trace.block_size),
        wait=wait,
        is_final=following is None,
        gap_s=_hint_s(gap_s, wait, ref, setup),
        next_gap_s=gap_s,
        next_keeps=_keeps(turn, following, trace.block_size, block_size),
        takes_s=turn.end_s - turn.start_s if setup.service == "recorded" else None,
    )


def _parent(trace: Trace, session: Session) -> str:
    return "" if session.parent is None else f"{trace.id}/{session.parent}"


def _wait(turn: Turn) -> Wait:
    if turn.finish_reason in _TOOL:
        return "tool"
    return "user" if turn.finish_reason in _USER else "unknown"


def _gap_s(turn: Turn, following: Turn | None, setup: Setup) -> float | None:
    if following is None:
        return None
    if setup.mode == "asap":
        return 0.0
    gap_s = max(0.0, following.start_s - turn.end_s)
    if setup.gap_cap_s is not None:
        gap_s = min(gap_s, setup.gap_cap_s)
    return gap_s * setup.time_scale


def _hint_s(gap_s: float | None, wait: Wait, ref: CallRef, setup: Setup) -> float | None:
    """Return what a client expects, who knows its tools somewhat, and people not at all."""
    if gap_s is None or wait == "user":
        return None
    # Drawn by the turn's place, so that every set-up gets the same hints.
    drawn = random.Random(f"{setup.seed}:{ref.trace}:{ref.session}:{ref.turn}")
    return gap_s * drawn.lognormvariate(0.0, setup.hint_sigma)


def _kept(before: Turn | None, turn: Turn, size: int) -> int | None:
    """Return what a client says that a turn keeps, where it does not go on from the last."""
    if before is None:
        return None
    kept = shared(before.blocks, turn.blocks)
    return None if kept == before.block_count else kept * size


def _keeps(turn: Turn, following: Turn | None, size: int, engine_size: int) -> int:
    if following is None:
        return 0
    return shared(turn.blocks, following.blocks) * size // engine_size
