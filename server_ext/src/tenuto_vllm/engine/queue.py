"""vLLM's queue of free blocks in three segments, still one linked list.

    head → [evict first] → FIRST → [ordinary] → LAST → [chain][chain]… → tail

The next block handed out is always the one at the head, so capacity, admission and preemption
are those of stock vLLM: a leased block is a free block that goes late. Segments and chains are
parted by marks, blocks of the list that no request ever gets, so that `remove` (a cache hit,
the most frequent call) needs no code of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Any

from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue, KVCacheBlock

from tenuto_vllm.engine.chain import Chain, Mark, link, unlink


class TurnQueue(FreeKVCacheBlockQueue):
    """Takes the place of vLLM's own queue, whose list it goes on with after `take_over`.

    Args:
        queue: exactly of vLLM's own class; it is not to be used after that.
        blocks: of the pool.

    Attributes:
        owners: by block id, the chain that a block joins when it is freed; None for most.
        heirs: by block id, chains of other sessions that use an owner's block, the newest first.
        shared: ids of blocks that more than their owner has used.
        has_owners: whether a block has ever had an owner.
        sole: the owner of all blocks that are about to be freed, where they have one.
        has_failed: the order was given up.
        discard: the owner of blocks that are to be evicted first.
        handed_out: blocks handed out since the start.
        make_room: asked to move at least so many leased blocks to the ordinary ones.
    """

    def __init__(self, queue: FreeKVCacheBlockQueue, blocks: int) -> None:
        self.num_free_blocks = queue.num_free_blocks
        self.fake_free_list_head = queue.fake_free_list_head
        self.fake_free_list_tail = queue.fake_free_list_tail
        self.owners: list[Chain | None] = [None] * blocks
        self.heirs: dict[int, tuple[Chain, ...]] = {}
        self.shared: set[int] = set()
        self.has_owners = self.has_failed = False
        self.sole: Chain | None = None
        self.handed_out = 0
        self.make_room: Callable[[int], None] = _make_none
        self._first, self._last = Mark(), Mark()
        self.discard = Chain()
        # It has no marks of its own: it ends where the first segment does.
        self.discard.end, self.discard.is_open = self._first, True

    def take_over(self) -> TurnQueue:
        """Put the marks into the list: from here on it is this queue's alone."""
        link(self._first, self._first, self.fake_free_list_head.next_free_block)
        link(self._last, self._last, self.fake_free_list_tail)
        return self

    def popleft(self) -> KVCacheBlock:
        """Hand out the first block; a ValueError says that there is none."""
        if not self.num_free_blocks:
            raise ValueError("No free blocks available")
        return self.popleft_n(1)[0]

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        """Hand out the first `n` blocks, of which there are as many."""
        if n == 0:
            return []
        assert self.num_free_blocks >= n
        taken: list[Any] = []
        before: Any = self.fake_free_list_head
        block: Any = before.next_free_block
        left = n
        # Decoding takes one at a time.
        if n == 1 and block.block_id >= 0:
            following = block.next_free_block
            before.next_free_block, following.prev_free_block = following, before
            block.prev_free_block = block.next_free_block = None
            taken, left = [block], 0
        while left:
            while left and block.block_id >= 0:
                taken.append(block)
                following = block.next_free_block
                block.prev_free_block = block.next_free_block = None
                block = following
                left -= 1
            before.next_free_block, block.prev_free_block = block, before
            if left:
                block = self._behind(block, left)
                before = block.prev_free_block
        self.num_free_blocks -= n
        self.handed_out += n
        if self.has_owners:
            self._disown(taken)
        return taken

    def prepend_n(self, blocks: list[KVCacheBlock]) -> None:
        """Take blocks back that no cache holds: whoever takes them next takes nothing away."""
        self.handed_out -= len(blocks)
        super().prepend_n(blocks)

    def append(self, block: KVCacheBlock) -> None:
        """Take a block back; see `append_n`."""
        self.append_n([block])

    def append_n(self, blocks: list[KVCacheBlock]) -> None:
        """Take blocks back, each behind those of its owner; of none, behind the ordinary ones."""
        if not blocks:
            return
        owner: Any = self.sole
        mark: Any = self._last if owner is None or not owner.is_open else owner.end
        before: Any = mark.prev_free_block
        self.num_free_blocks += len(blocks)
        if owner is not None or not self.has_owners:
            for block in blocks:
                block.prev_free_block = before
                before.next_free_block = block
                before = block
            before.next_free_block, mark.prev_free_block = mark, before
            if owner is not None:
                owner.blocks += len(blocks)
            return
        owners: Any = self.owners
        since = 0
        for at, block in enumerate(blocks):
            other = owners[block.block_id]
            if other is not owner:
                before.next_free_block, mark.prev_free_block = mark, before
                if owner is not None:
                    owner.blocks += at - since
                owner, since = other, at
                mark = owner.end if owner is not None and owner.is_open else self._last
                before = mark.prev_free_block
            block.prev_free_block = before
            before.next_free_block = block
            before = block
        before.next_free_block, mark.prev_free_block = mark, before
        if owner is not None:
            owner.blocks += len(blocks) - since
        if self.discard.blocks:
            self._forget_discarded(blocks)

    def get_all_free_blocks(self) -> list[KVCacheBlock]:
        """Return all blocks in the order in which they go."""
        return list(self.iter_blocks_after(None))

    def iter_blocks_after(self, cursor: KVCacheBlock | None) -> Iterator[KVCacheBlock]:
        """Yield the blocks behind one, or all, in the order in which they go."""
        block: Any = self.fake_free_list_head if cursor is None else cursor
        while (block := block.next_free_block) is not None:
            if block.block_id >= 0:
                yield block

    def lease(self, chain: Chain) -> None:
        """Put a chain, with all it holds, behind the leased ones."""
        if chain.place != "leased":
            self._move(chain, self.fake_free_list_tail)
            chain.place, chain.is_open = "leased", True

    def demote(self, chain: Chain) -> None:
        """Put a leased chain, with all it holds, behind the ordinary blocks."""
        if chain.place == "leased":
            self._move(chain, self._last)
            chain.place, chain.is_open, chain.blocks = "ordinary", False, 0

    def retire(self, chain: Chain) -> None:
        """Put a chain behind the ordinary blocks, open to those that are still to be freed."""
        self._move(chain, self._last)
        chain.place, chain.is_open, chain.blocks = "ordinary", True, 0

    def cut(self, chain: Chain, most: int) -> int:
        """Put up to so many leading blocks of a chain behind the ordinary ones.

        It stops at a block that another session uses as well.

        Returns:
            How many were moved.
        """
        count, last, end, heirs = 0, chain.start, chain.end, self.heirs
        following: Any = last.next_free_block if chain.place else end
        while count < most and following is not end and following.block_id not in heirs:
            last, following = following, following.next_free_block
            count += 1
        if count:
            first = chain.start.next_free_block
            unlink(first, last)
            link(first, last, self._last)
        chain.blocks = max(0, chain.blocks - count)
        return count

    def drop(self, chain: Chain, keep: Container[int] = (), spare_tokens: float = 0) -> None:
        """Let the blocks of a chain be evicted first, and those that others have used be ordinary.

        Args:
            chain: its marks are taken off the list, if all its blocks are.
            keep: ids of blocks that stay.
            spare_tokens: the prompt's blocks up to there are ordinary too.
        """
        kept: list[Any] = []
        for block in self.blocks_of(chain):
            if block.block_id in keep:
                unlink(block, block)
                kept.append(block)
                continue
            self.owners[block.block_id] = None
            # Where a block does not say what it covers, nothing says that it is no beginning.
            covers = getattr(block, "block_hash_num_tokens", None) or 0
            if block.block_id in self.shared or 0 < spare_tokens >= covers:
                self.put(block, None)
        if chain.place and chain.start.next_free_block is not chain.end:
            first, last = chain.start.next_free_block, chain.end.prev_free_block
            unlink(first, last)
            link(first, last, self._first)
        for block in kept:
            link(block, block, chain.end)
        chain.blocks = len(kept)
        if not kept:
            self.close(chain)

    def close(self, chain: Chain) -> None:
        """Take a chain's marks off the list; its blocks stay where they are."""
        if chain.place:
            unlink(chain.start, chain.start)
            unlink(chain.end, chain.end)
            chain.place, chain.is_open, chain.blocks = "", False, 0

    def put(self, block: Any, chain: Chain | None) -> None:
        """Move one free block to the end of a leased chain, or of the ordinary blocks."""
        unlink(block, block)
        if chain is not None and chain.is_open:
            link(block, block, chain.end)
            chain.blocks += 1
        else:
            link(block, block, self._last)

    def count(self, chain: Chain) -> int:
        """Count the blocks of a chain."""
        chain.blocks, chain.is_uncounted = sum(1 for _ in self.blocks_of(chain)), False
        return chain.blocks

    def blocks_of(self, chain: Chain) -> Iterator[Any]:
        """Yield the blocks of a chain; each may be moved while it is looked at."""
        if chain.place:
            block = chain.start.next_free_block
            while block is not chain.end:
                following = block.next_free_block
                yield block
                block = following

    def disown(self) -> None:
        """Give up the order: what is free, and what is freed from here on, is ordinary."""
        if self._last.next_free_block is not None:
            unlink(self._last, self._last)
            link(self._last, self._last, self.fake_free_list_tail)
        self.owners[:] = [None] * len(self.owners)
        self.heirs.clear()
        self.shared.clear()
        self.has_owners, self.has_failed, self.sole = False, True, None
        self.make_room = _make_none

    def segments(self) -> tuple[int, int, int]:
        """Return how many blocks are evict-first, ordinary and leased, counted one by one."""
        counts, at = [0, 0, 0], 0
        block: Any = self.fake_free_list_head
        while (block := block.next_free_block) is not self.fake_free_list_tail:
            if block.block_id >= 0:
                counts[at] += 1
            elif block.chain is None:
                at += 1
        return counts[0], counts[1], counts[2]

    def _behind(self, mark: Any, missing: int) -> Any:
        """Return the first block behind a mark, to which all before it has been handed out."""
        while mark.block_id < 0:
            if mark is self._first:
                mark = mark.next_free_block
            elif mark is not self._last:
                # A demoted chain whose turn has come.
                before = mark.prev_free_block
                self.close(mark.chain)
                mark = before.next_free_block
            else:
                before = mark.prev_free_block
                try:
                    self.make_room(missing)
                except Exception:
                    self.disown()
                if before.next_free_block is mark:
                    # Whoever it belongs to: no request waits for a lease.
                    self.demote(mark.next_free_block.chain)
                mark = before.next_free_block
        return mark

    def _disown(self, blocks: list[Any]) -> None:
        owners, heirs, shared = self.owners, self.heirs, self.shared
        for block in blocks:
            owners[block.block_id] = None
        if shared:
            for block in blocks:
                if block.block_id in shared:
                    shared.discard(block.block_id)
                    heirs.pop(block.block_id, None)

    def _forget_discarded(self, blocks: list[Any]) -> None:
        self.discard.blocks = 0
        for block in blocks:
            if self.owners[block.block_id] is self.discard:
                self.owners[block.block_id] = None

    def _move(self, chain: Chain, before: Any) -> None:
        if chain.place:
            unlink(chain.start, chain.end)
        else:
            chain.start.next_free_block, chain.end.prev_free_block = chain.end, chain.start
        link(chain.start, chain.end, before)


def _make_none(_need: int) -> None:
    """Make no room: the front chain goes as it stands."""
