"""How many requests this process has sent to each rank and not yet seen end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class InFlight:
    """Requests per rank; for one event loop, so without a lock."""

    def __init__(self) -> None:
        # Only ranks with requests, so that an idle process has nothing to count.
        self._by_rank: dict[int, int] = {}

    def counts(self, ranks: int) -> Sequence[int]:
        """Return the requests of each rank, shape (ranks,)."""
        known = self._by_rank.get
        return [known(rank, 0) for rank in range(ranks)]

    def items(self) -> Iterable[tuple[int, int]]:
        """Return the ranks that have requests, and how many."""
        return self._by_rank.items()

    def of(self, rank: int) -> int:
        """Return the requests of one rank."""
        return self._by_rank.get(rank, 0)

    def begin(self, rank: int) -> None:
        """Count one request on `rank`, until `end` is called with the same."""
        self._by_rank[rank] = self._by_rank.get(rank, 0) + 1

    def end(self, rank: int) -> None:
        """Take back one request."""
        self._by_rank[rank] -= 1
        if not self._by_rank[rank]:
            del self._by_rank[rank]
