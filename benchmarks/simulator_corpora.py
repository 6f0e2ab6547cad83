"""Corpora that are made of another, and what can be said of one without a simulation. Pure.

Nothing here is drawn without a seed, so that the same corpus gives the same files.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tenuto.replay import Reach
from tenuto.trace import Session, Trace, Turn

# Apart from any id that a trace has.
_OWN = 1 << 40
_DEALS = 400


def resampled(
    traces: Sequence[Trace], count: int, forking_share: float | None = None
) -> Iterator[Trace]:
    """Yield traces drawn with replacement, and so begun in an order drawn afresh.

    Args:
        traces: what is drawn from.
        count: how many are drawn.
        forking_share: of those with several sessions; as in `traces` if None.
    """
    draw = random.Random(0)
    forking = [trace for trace in traces if len(trace.sessions) > 1]
    others = [trace for trace in traces if len(trace.sessions) == 1]
    for number in range(count):
        kind = traces
        if forking_share is not None:
            kind = forking if draw.random() < forking_share else others
        trace = draw.choice(kind)
        yield replace(trace, id=f"{trace.id}-{number}")


def inheriting(trace: Trace) -> Trace:
    """Return a trace whose subagents begin with the prompt of the turn that spawned them."""
    made: dict[str, Session] = {}
    for session in trace.sessions:
        if session.parent is not None and session.spawned_after is not None:
            spawning = made[session.parent].turns[session.spawned_after]
            turns = tuple(behind(spawning, turn, trace.block_size) for turn in session.turns)
            session = replace(session, turns=turns, fork="inherit")  # noqa: PLW2901
        made[session.label] = session
    return replace(trace, sessions=tuple(made.values()))


def behind(spawning: Turn, turn: Turn, block_size: int) -> Turn:
    """Return a turn with another's prompt before its own."""
    own = ((first + _OWN, count) for first, count in turn.blocks)
    return replace(
        turn,
        blocks=(*spawning.blocks, *own),
        input_tokens=spawning.block_count * block_size + turn.input_tokens,
    )


def computed(trace: Trace, session: Session) -> list[int]:
    """Return what each turn of a session computes with a cache without end of its own."""
    reach = Reach()
    return [
        turn.input_tokens - reach.sent(0, turn.blocks, turn.input_tokens, trace.block_size, None)[0]
        for turn in session.turns
    ]


def known_of(traces: Sequence[Trace], ranks: int) -> dict[str, Any]:
    """Return what bounds a placement of whole sessions, with caches without end.

    Returns:
        `largest`: tokens that one session computes, of all the most;
        `behind_little`: share of the tokens that turns compute which keep less than half of the
        prompt before them;
        `foreseen`: correlation of what sessions have computed with what they will, at every
        tenth turn;
        `dealt_known`: imbalance when each session goes to one rank, dealt by who knows what each
        computes, the longest first;
        `dealt_unknown`: as many to each rank, at random: the 5th, 50th and 95th percentile.
    """
    each = [computed(trace, session) for trace in traces for session in trace.sessions]
    sums = [sum(tokens) for tokens in each]
    little = 0
    for session, tokens in zip(
        (one for trace in traces for one in trace.sessions), each, strict=True
    ):
        for before, turn, own in zip(session.turns, session.turns[1:], tokens[1:], strict=False):
            little += own if turn.input_tokens - own < before.input_tokens / 2 else 0
    past = [sum(tokens[:at]) for tokens in each for at in range(0, len(tokens), 10)]
    future = [sum(tokens[at:]) for tokens in each for at in range(0, len(tokens), 10)]
    return {
        "largest": max(sums),
        "behind_little": little / sum(sums),
        "foreseen": float(np.corrcoef(past, future)[0, 1]) if any(past) else 0.0,
        "dealt_known": _longest_first(sums, ranks),
        "dealt_unknown": _at_random(sums, ranks),
    }


def _longest_first(sums: Sequence[int], ranks: int) -> float:
    heap = [0] * ranks
    for tokens in sorted(sums, reverse=True):
        heapq.heapreplace(heap, heap[0] + tokens)
    return max(heap) * ranks / sum(sums)


def _at_random(sums: Sequence[int], ranks: int) -> list[float]:
    draw, order = random.Random(0), list(sums)
    worst: list[float] = []
    for _ in range(_DEALS):
        draw.shuffle(order)
        worst.append(max(sum(order[rank::ranks]) for rank in range(ranks)) * ranks / sum(order))
    worst.sort()
    return [worst[round(share * (_DEALS - 1))] for share in (0.05, 0.5, 0.95)]
