"""What a simulation adds up to. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tenuto.results import Results, TurnResult


@dataclass(frozen=True, slots=True)
class Outcome:
    """Sums of one set-up.

    Attributes:
        name: of the set-up.
        ranks: how many.
        tokens_per_rank: cache of each.
        placement: its name.
        retention: its name.
        service: `modelled` or `recorded`; recorded times to first token are those of the traces.
        calls: that were served.
        refused: that fit no rank.
        prompt_tokens: of all calls.
        computed_tokens: prompt tokens that a rank had to compute.
        hit: cached tokens as a share of prompt tokens.
        theoretical_hit: the share with caches without end, on whichever rank.
        imbalance: computed tokens of the rank with the most, to the mean of all.
        request_imbalance: the same of requests.
        moves: calls that went elsewhere than their session's call before.
        most_moves: of one session within a minute.
        lost_to_placement: tokens that another rank had and the one that served had not.
        lost_to_retention: tokens that the rank that served had had, and evicted.
        ttft_p50_s: median time to first token, virtual seconds.
        ttft_p90_s: its 90th percentile.
        wall_s: virtual seconds from the first call to the last answer.
    """

    name: str
    ranks: int
    tokens_per_rank: int
    placement: str
    retention: str
    service: str
    calls: int
    refused: int
    prompt_tokens: int
    computed_tokens: int
    hit: float
    theoretical_hit: float
    imbalance: float
    request_imbalance: float
    moves: int
    most_moves: int
    lost_to_placement: int
    lost_to_retention: int
    ttft_p50_s: float
    ttft_p90_s: float
    wall_s: float


def outcome_of(results: Results) -> Outcome:
    """Add up a simulation's results."""
    served = [turn for turn in results.turns if turn.error is None]
    engine = results.header.engine
    prompt_tokens = sum(turn.prompt_tokens for turn in served)
    ranks: int = results.header.ranks or 1
    computed: Counter[int | None] = Counter()
    requests: Counter[int | None] = Counter()
    lost_to_placement = lost_to_retention = reachable_tokens = 0
    for turn in served:
        computed[turn.rank] += turn.uncached_tokens
        requests[turn.rank] += 1
        reachable = turn.reachable_tokens or 0
        on_rank = turn.rank_reachable_tokens or 0
        reachable_tokens += reachable
        lost_to_placement += reachable - on_rank
        lost_to_retention += max(0, on_rank - turn.cached_tokens)
    moved = _moves(served)
    return Outcome(
        name=results.header.name,
        ranks=ranks,
        tokens_per_rank=engine["tokens_per_rank"],
        placement=engine["placement"],
        retention=engine["retention"],
        service=engine["service"],
        calls=len(served),
        refused=len(results.turns) - len(served),
        prompt_tokens=prompt_tokens,
        computed_tokens=computed.total(),
        hit=(prompt_tokens - computed.total()) / max(1, prompt_tokens),
        theoretical_hit=reachable_tokens / max(1, prompt_tokens),
        imbalance=_imbalance([computed[rank] for rank in range(ranks)]),
        request_imbalance=_imbalance([requests[rank] for rank in range(ranks)]),
        moves=sum(map(len, moved.values())),
        most_moves=max(map(_most_a_minute, moved.values()), default=0),
        lost_to_placement=lost_to_placement,
        lost_to_retention=lost_to_retention,
        ttft_p50_s=_percentile([turn.ttft_s for turn in served], 50),
        ttft_p90_s=_percentile([turn.ttft_s for turn in served], 90),
        wall_s=max((turn.end_s for turn in served), default=0.0)
        - min((turn.start_s for turn in served), default=0.0),
    )


def _moves(turns: Sequence[TurnResult]) -> dict[tuple[str, str], list[float]]:
    """Return when each session was sent elsewhere than before."""
    homes: dict[tuple[str, str], int | None] = {}
    moved: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for turn in sorted(turns, key=lambda turn: turn.start_s):
        session = turn.trace, turn.session
        if homes.setdefault(session, turn.rank) != turn.rank:
            homes[session] = turn.rank
            moved[session].append(turn.start_s)
    return moved


def _most_a_minute(times_s: Sequence[float]) -> int:
    return max(
        bisect_left(times_s, since_s + 60.0) - first for first, since_s in enumerate(times_s)
    )


def _percentile(values: Sequence[float], percent: float) -> float:
    return float(np.percentile(values, percent)) if values else 0.0


def _imbalance(counts: Sequence[int]) -> float:
    return max(counts) * len(counts) / sum(counts) if sum(counts) else 1.0
