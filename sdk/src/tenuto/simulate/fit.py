"""A latency model from measured turns: non-negative least squares. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tenuto.results import TurnResult
from tenuto_vllm.embedded.latency import Latency

# Fewer turns than this that had a rank to themselves say too little of it.
_ENOUGH = 20


def fit(*runs: Sequence[TurnResult]) -> Latency:
    """Return the latency model that is nearest to measured turns.

    Each argument has the turns of one run, on a clock of its own: what was under way beside a
    turn is looked for in its run alone.

    Prefill is fitted to the time to first token, less what is known of queueing, of turns
    that had their rank to themselves when they began, where there are enough of those;
    decode to the time between tokens, by how many turns decoded beside each.

    Raises:
        ValueError: fewer than three turns without an error.
    """
    answered = [[turn for turn in run if turn.error is None] for run in runs]
    good = [turn for run in answered for turn in run]
    if len(good) < 3:
        raise ValueError(f"{len(good)} turns without an error; a fit needs at least 3")
    alone = [
        turn
        for run in answered
        for turn, beside in zip(run, _beside(run), strict=True)
        if beside == 0
    ]
    # A turn that is given twice says nothing more.
    quiet = alone if len(set(alone)) >= _ENOUGH else good
    overhead_s, uncached_s, context_s = _solved(
        [(1.0, t.uncached_tokens, t.uncached_tokens * t.prompt_tokens) for t in quiet],
        [t.ttft_s - (t.queue_s or 0.0) for t in quiet],
    )
    decoding = [
        (turn, beside)
        for run in answered
        for turn, beside in zip(run, _beside(run, decode=True), strict=True)
        if turn.output_tokens > 1
    ]
    decode_s, crowd_s = _solved(
        [(1.0, beside) for _, beside in decoding],
        [(turn.end_s - turn.first_token_s) / (turn.output_tokens - 1) for turn, _ in decoding],
    )
    return Latency(overhead_s, uncached_s, context_s, decode_s, crowd_s)


def _beside(turns: Sequence[TurnResult], *, decode: bool = False) -> list[int]:
    """Return how many other turns of its repeat and rank were under way when each began."""
    counts = [0] * len(turns)
    by_rank: dict[tuple[int, int | None], list[int]] = {}
    for index, turn in enumerate(turns):
        by_rank.setdefault((turn.repeat, turn.rank), []).append(index)
    for indices in by_rank.values():
        starts = np.array([_begin(turns[i], decode) for i in indices])
        ends = np.array([turns[i].end_s for i in indices])
        begun = np.searchsorted(np.sort(starts), starts, side="right")
        ended = np.searchsorted(np.sort(ends), starts, side="right")
        for index, count in zip(indices, (begun - ended - 1).tolist(), strict=True):
            counts[index] = max(0, count)
    return counts


def _begin(turn: TurnResult, decode: bool) -> float:
    return turn.first_token_s if decode else turn.start_s


def _solved(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Return non-negative coefficients: those that come out negative are left out one by one."""
    if not rows:
        return [0.0, 0.0]
    table: NDArray[np.float64] = np.array(rows, dtype=np.float64)
    wanted = np.array(values, dtype=np.float64)
    # Columns of one size, or a product of token counts drowns the rest.
    sizes = np.abs(table).max(axis=0)
    sizes[sizes == 0] = 1.0
    kept = list(range(table.shape[1]))
    solved = np.zeros(table.shape[1])
    while kept:
        solution = cast("Any", np.linalg.lstsq(table[:, kept] / sizes[kept], wanted, rcond=None))
        part: list[float] = solution[0].tolist()
        if min(part) >= 0:
            solved[kept] = part / sizes[kept]
            break
        kept.pop(part.index(min(part)))
    return [float(one) for one in solved]
