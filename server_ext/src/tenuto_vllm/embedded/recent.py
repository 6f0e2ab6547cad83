"""How many sessions each rank was given lately.

Agents wait most of their time for tools, so the requests in flight say little of how
many sessions a rank holds; a fading count of first placements tells idle ranks apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HALF_LIFE_S = 300.0


@dataclass(frozen=True, slots=True)
class Recent:
    """Fading counts of first placements, as of `at_s` (monotonic seconds)."""

    counts: tuple[float, ...] = ()
    at_s: float = 0.0

    def at(self, now_s: float, ranks: int) -> Sequence[float]:
        """Return the counts at `now_s` for `ranks` ranks, shape (ranks,)."""
        fade = 0.5 ** (max(0.0, now_s - self.at_s) / HALF_LIFE_S)
        known = [count * fade for count in self.counts[:ranks]]
        return known + [0.0] * (ranks - len(known))

    def placed(self, rank: int, now_s: float, ranks: int) -> Recent:
        """Return the counts after one more session went to `rank` at `now_s`."""
        counts = list(self.at(now_s, ranks))
        counts[rank] += 1.0
        return Recent(tuple(counts), now_s)
