"""A cache without end, in runs of block ids. Pure but for its own state."""

from __future__ import annotations

import bisect

from tenuto.trace.runs import Runs


class Seen:
    """The block ids of all prompts so far, as intervals that do not touch.

    54 million blocks of 29,000 prompts are some 100,000 runs; a call costs a bisection for each.
    """

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []

    def prefix(self, runs: Runs) -> int:
        """Return how many blocks at the start of a prompt have been seen."""
        count = 0
        for first, length in runs:
            at = bisect.bisect_right(self._firsts, first) - 1
            known = min(length, self._ends[at] - first) if at >= 0 else 0
            if known > 0:
                count += known
            if known < length:
                break
        return count

    def add(self, runs: Runs) -> None:
        """See a prompt."""
        for first, length in runs:
            self._put(first, first + length)

    def _put(self, first: int, end: int) -> None:
        # All intervals from `low` to `high` touch this one and become part of it.
        low = bisect.bisect_left(self._ends, first)
        high = bisect.bisect_right(self._firsts, end)
        if low < high:
            first, end = min(first, self._firsts[low]), max(end, self._ends[high - 1])
        self._firsts[low:high] = [first]
        self._ends[low:high] = [end]
