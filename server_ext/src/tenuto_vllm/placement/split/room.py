"""The order in which one node's cache lets go of what it holds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class _Stretch:
    """What was used last at the same time, the first `tokens` by a session, the rest by nobody."""

    session: str | None
    tokens: int = 0
    left: int = 0


class Room:
    """Tokens by session, the longest unused first, as an LRU cache of blocks keeps them.

    Of a context its end goes first. What nobody asks for again, of a session that has ended
    or a context that was rewritten, takes room until it is the oldest.

    Args:
        capacity: tokens that the node's cache holds.
    """

    __slots__ = ("_capacity", "_of", "_order", "_total")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._order: OrderedDict[_Stretch, None] = OrderedDict()
        self._of: dict[str, _Stretch] = {}
        self._total = 0

    @property
    def capacity(self) -> int:
        """Tokens that the node's cache holds."""
        return self._capacity

    def used(self, session: str, tokens: int) -> None:
        """Note what a session takes of the room, and that this was used last."""
        own = self._of.get(session)
        if own is not None and own.left:
            self._total -= own.tokens
            own.session, own.tokens, own = None, 0, None
        if own is None:
            own = self._of[session] = _Stretch(session)
            self._order[own] = None
        else:
            self._order.move_to_end(own)
        self._total += tokens - own.tokens
        own.tokens = tokens

    def left(self, session: str, tokens: int) -> None:
        """Note that a session has rewritten so many tokens at its end: they stay as nobody's."""
        own = self._of.get(session)
        if own is not None:
            tokens = min(tokens, own.tokens)
            own.tokens -= tokens
            own.left += tokens

    def forgotten(self, session: str) -> None:
        """Note that nobody asks for what a session takes."""
        own = self._of.pop(session, None)
        if own is not None:
            own.session, own.left, own.tokens = None, own.left + own.tokens, 0

    def gone(self, session: str, tokens: int) -> None:
        """Note that so many tokens at a session's end are not there any more."""
        own = self._of.get(session)
        if own is not None:
            tokens = min(tokens, own.tokens)
            own.tokens -= tokens
            self._total -= tokens

    def evicted(self) -> Iterator[tuple[str, int]]:
        """Let go of what is too much; yield the sessions whose tokens went and how many."""
        while self._total > self._capacity and len(self._order) > 1:
            oldest = next(iter(self._order))
            over = self._total - self._capacity
            nobodys = min(oldest.left, over)
            lost = min(oldest.tokens, over - nobodys)
            oldest.left -= nobodys
            oldest.tokens -= lost
            self._total -= nobodys + lost
            if not oldest.left and not oldest.tokens:
                del self._order[oldest]
                if oldest.session is not None:
                    del self._of[oldest.session]
            if oldest.session is not None and lost:
                yield oldest.session, lost
