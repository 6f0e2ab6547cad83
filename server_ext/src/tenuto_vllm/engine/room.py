"""Leased blocks become ordinary ones: for a request that needs them, and for the share of all."""

from __future__ import annotations

from collections.abc import Callable

from tenuto_vllm.engine.book import Book
from tenuto_vllm.engine.lease import Lease
from tenuto_vllm.engine.queue import TurnQueue
from tenuto_vllm.engine.sharing import hand_over

# Of a chain that gives more, the rest goes too: a whole chain moves at once, a part block by block.
_MOST_CUT = 0.875


class Room:
    """Takes from the leases in force, in the order in which they are to give way.

    Args:
        queue: of the free blocks.
        book: the leases.
        count: takes in what became of one.
        is_whole: a session's blocks go together.
    """

    def __init__(
        self,
        queue: TurnQueue,
        book: Book,
        count: Callable[[str, Lease], None],
        is_whole: bool,
    ) -> None:
        self._queue = queue
        self._book = book
        self._count = count
        self._is_whole = is_whole

    def make(self, need: int, now_s: float) -> None:
        """Make so many blocks ordinary, if that many are leased to sessions that wait."""
        for lease in self._book.victims(now_s):
            if not lease.is_cut:
                self._count("lost", lease)
            lease.is_cut = True
            need -= self._give(lease, need)
            if need <= 0:
                return

    def enforce(self, spare: int, now_s: float) -> None:
        """Keep to the share of each tenant and to that of all.

        Args:
            spare: whoever gives way gives so many blocks more, so that it is not asked again soon.
            now_s: seconds.
        """
        above, over = self._book.surplus()
        if above <= 0 and max(over.values(), default=0) <= 0:
            return
        if uncounted := self._book.uncounted():
            for chain in uncounted:
                self._queue.count(chain)
            above, over = self._book.surplus()
        for lease in self._book.waiting(now_s):
            most = max(above, over[lease.tenant])
            if most > 0:
                count = self._give(lease, most + spare)
                above -= count
                over[lease.tenant] -= count
                self._count("demoted", lease)

    def _give(self, lease: Lease, most: int) -> int:
        """Make up to so many blocks of a lease ordinary, its tail first; return how many."""
        given = 0
        if not self._is_whole and most < _MOST_CUT * lease.chain.blocks:
            given = self._queue.cut(lease.chain, most)
            if given == most:
                return given
        self._book.strike(lease)
        # What others use stays leased, with them.
        hand_over(self._queue, lease)
        if lease.chain.is_uncounted:
            self._queue.count(lease.chain)
        given += lease.chain.blocks
        self._queue.demote(lease.chain)
        return given
