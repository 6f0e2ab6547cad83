"""What one rank's cache most likely holds, by session."""

from __future__ import annotations

from collections import OrderedDict


class Shelf:
    """Contexts of sessions in the order of their last use; the oldest go when it is full.

    It stands for an LRU cache whose blocks are let go from a context's end: of what vLLM
    frees of a request the last block is evicted first.

    Args:
        capacity: tokens that the rank's cache holds; None where that is not known.
        most: sessions that are kept; the oldest are forgotten first.
    """

    __slots__ = ("_capacity", "_held", "_most", "_total")

    def __init__(self, capacity: int | None, most: int) -> None:
        self._capacity = capacity
        self._most = most
        self._held: OrderedDict[str, int] = OrderedDict()
        self._total = 0

    def __len__(self) -> int:
        """Return how many sessions it knows."""
        return len(self._held)

    def held(self, session: str) -> int:
        """Return how many tokens of a session's context are still there."""
        return self._held.get(session, 0)

    def used(self, session: str, tokens: int) -> None:
        """Put a session's whole context in, as its rank has just used it."""
        self._total += tokens - self._held.pop(session, 0)
        self._held[session] = tokens
        if len(self._held) > self._most:
            self.drop(next(iter(self._held)))
        while self._capacity is not None and self._total > self._capacity:
            oldest, size = next(iter(self._held.items()))
            over = self._total - self._capacity
            if size > over:
                self._held[oldest] = size - over
                self._total = self._capacity
            else:
                self.drop(oldest)

    def drop(self, session: str) -> None:
        """Forget a session."""
        self._total -= self._held.pop(session, 0)

    def clear(self) -> None:
        """Forget all: the cache was emptied."""
        self._held.clear()
        self._total = 0
