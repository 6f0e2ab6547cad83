"""How many requests this process has sent to each rank and not yet seen end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager


class InFlight:
    """Requests per rank; for one event loop, so without a lock."""

    def __init__(self) -> None:
        self._by_rank: Counter[int] = Counter()

    def counts(self, ranks: int) -> Sequence[int]:
        """Return the requests of each rank, shape (ranks,)."""
        return [self._by_rank[rank] for rank in range(ranks)]

    @contextmanager
    def on(self, rank: int) -> Generator[None]:
        """Count one request on `rank` until the block ends, however it ends."""
        self._by_rank[rank] += 1
        try:
            yield
        finally:
            self._by_rank[rank] -= 1
