"""Stretches of the list of free blocks."""

from __future__ import annotations

from typing import Any, Literal

from vllm.v1.core.kv_cache_utils import KVCacheBlock

Place = Literal["", "ordinary", "leased"]


class Mark(KVCacheBlock):
    """A place in the list.

    Attributes:
        chain: that begins or ends here; None at the end of a segment.
    """

    __slots__ = ("chain",)

    def __init__(self, chain: Chain | None = None) -> None:
        super().__init__(block_id=-1)
        self.chain = chain


class Chain:
    """The free blocks of one session, in the order in which they go.

    Attributes:
        lease: whose they are; the queue never looks at it.
        start, end: marks around them.
        place: segment that the marks are in; empty while they are in none.
        is_open: blocks that it owns join it when they are freed.
        blocks: how many were put in. Hits take blocks out uncounted: it is an upper bound.
        is_uncounted: other sessions' hits have taken blocks out since it was counted.
    """

    __slots__ = ("blocks", "end", "is_open", "is_uncounted", "lease", "place", "start")

    def __init__(self, lease: Any = None) -> None:
        self.lease = lease
        self.start: Any = Mark(self)
        self.end: Any = Mark(self)
        self.place: Place = ""
        self.is_open = self.is_uncounted = False
        self.blocks = 0


def link(first: Any, last: Any, following: Any) -> None:
    """Put a stretch in front of a node."""
    before = following.prev_free_block
    before.next_free_block, first.prev_free_block = first, before
    last.next_free_block, following.prev_free_block = following, last


def unlink(first: Any, last: Any) -> None:
    """Take a stretch out; it stays linked within."""
    before, following = first.prev_free_block, last.next_free_block
    before.next_free_block, following.prev_free_block = following, before
