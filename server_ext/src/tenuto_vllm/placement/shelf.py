"""What one rank's cache most likely holds, by session."""

from __future__ import annotations

from collections import OrderedDict

_NOTHING = (0, 0)
_TOGETHER = 8_192


class Shelf:
    """Contexts of sessions in the order of their last use; the oldest go when it is full.

    It stands for an LRU cache whose blocks are let go from a context's end: of what vLLM
    frees of a request the last block is evicted first. What a session shares with the one that
    it began from takes room once, and is there as long as something of its own is.

    Args:
        capacity: tokens that the rank's cache holds; None where that is not known.
        most: sessions that are kept; the oldest are forgotten first.
    """

    __slots__ = ("_capacity", "_held", "_most", "_passed", "_together", "_total")

    def __init__(self, capacity: int | None, most: int) -> None:
        self._capacity = capacity
        self._most = most
        # Tokens of its own, and those that it shares with another.
        self._held: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._total = 0
        self._passed = 0
        # Many short prompts must not push sessions out by their number.
        self._together = max(_TOGETHER, 2 * (capacity or 0) // most)

    def __len__(self) -> int:
        """Return how many sessions it knows."""
        return len(self._held)

    def held(self, session: str) -> int:
        """Return how many tokens of a session's context are still there."""
        return sum(self._held.get(session, _NOTHING))

    def used(self, session: str, tokens: int, found: int = 0) -> None:
        """Put a session's whole context in, as its rank has just used it.

        Args:
            session: whose.
            tokens: of the context.
            found: of them that the rank had already; another's where it had none of this session.
        """
        own, shared = self._held.pop(session, (0, found))
        shared = min(shared, found, tokens)
        self._total += tokens - shared - own
        self._held[session] = tokens - shared, shared
        if len(self._held) > self._most:
            self.drop(next(iter(self._held)))
        while self._capacity is not None and self._total > self._capacity:
            oldest, (size, shared) = next(iter(self._held.items()))
            over = self._total - self._capacity
            if size > over:
                self._held[oldest] = size - over, shared
                self._total = self._capacity
            else:
                self.drop(oldest)

    def passed(self, tokens: int) -> None:
        """Put in a prompt that nobody comes back for; some together count as one context."""
        name = f"#{self._passed}"
        before = self.held(name)
        if before >= self._together:
            self._passed += 1
            name, before = f"#{self._passed}", 0
        self.used(name, before + tokens, before)

    def drop(self, session: str) -> None:
        """Forget a session."""
        self._total -= self._held.pop(session, _NOTHING)[0]

    def clear(self) -> None:
        """Forget all: the cache was emptied."""
        self._held.clear()
        self._total = 0
