"""Sums over measured turns. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.results import TurnResult


@dataclass(frozen=True, slots=True)
class Summary:
    """What a set of turns adds up to.

    Attributes:
        requests: number of turns.
        requests_per_rank: turns that each rank served, in rank order; turns whose rank
            is unknown are in none.
        sessions: number of sessions; each repeat has its own.
        sessions_on_one_rank: sessions whose turns were all served by one known rank.
        prompt_tokens: prompt tokens of all turns.
        cached_tokens: prompt tokens that came from a rank's cache.
        ttft_p50_s: median of the time to the first token, in seconds; 0 without turns.
        ttft_p90_s: its 90th percentile, in seconds; 0 without turns.
        wall_s: from the first call to the last answer's end, in seconds.
    """

    requests: int
    requests_per_rank: tuple[int, ...]
    sessions: int
    sessions_on_one_rank: int
    prompt_tokens: int
    cached_tokens: int
    ttft_p50_s: float
    ttft_p90_s: float
    wall_s: float

    @property
    def knows_ranks(self) -> bool:
        """Whether any turn says which rank served it, or there is none."""
        return any(self.requests_per_rank) or not self.requests

    @property
    def cached_share(self) -> float:
        """Cached tokens as a share of prompt tokens, 0..1; 0 without turns."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def uncached_tokens(self) -> int:
        """Prompt tokens that a rank had to compute."""
        return self.prompt_tokens - self.cached_tokens


def summarise(results: Sequence[TurnResult], *, ranks: int) -> Summary:
    """Add up results of one side.

    Args:
        results: in any order; sessions are told apart by trace, label and repeat.
        ranks: data-parallel ranks of the server, >= 1.
    """
    visited: dict[tuple[str, str, int], set[int | None]] = {}
    for result in results:
        session = (result.trace, result.session, result.repeat)
        visited.setdefault(session, set()).add(result.rank)
    ttft_s = sorted(result.ttft_s for result in results)
    return Summary(
        requests=len(results),
        requests_per_rank=tuple(
            sum(result.rank == rank for result in results) for rank in range(ranks)
        ),
        sessions=len(visited),
        sessions_on_one_rank=sum(len(seen) == 1 and None not in seen for seen in visited.values()),
        prompt_tokens=sum(result.prompt_tokens for result in results),
        cached_tokens=sum(result.cached_tokens for result in results),
        ttft_p50_s=_percentile(ttft_s, 0.5),
        ttft_p90_s=_percentile(ttft_s, 0.9),
        wall_s=max((result.end_s for result in results), default=0.0)
        - min((result.start_s for result in results), default=0.0),
    )


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Interpolate between the two nearest values, as NumPy's default does."""
    if not ordered:
        return 0.0
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
