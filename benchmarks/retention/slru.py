"""Segmented LRU, the best known order without hints: what was hit once is evicted late."""

from __future__ import annotations

from typing import Any

from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue, KVCacheBlock
from vllm.v1.core.sched.async_scheduler import AsyncScheduler

_SHARE = 0.5


class _SegmentedQueue(FreeKVCacheBlockQueue):
    """[once][again]: a block that was hit joins the second segment when it is freed."""

    hit: set[int]
    again: dict[int, Any]
    most: int

    def popleft_n(self, n: int) -> list[KVCacheBlock]:
        taken = super().popleft_n(n)
        for block in taken:
            self.again.pop(block.block_id, None)
            self.hit.discard(block.block_id)
        return taken

    def popleft(self) -> KVCacheBlock:
        return self.popleft_n(1)[0]

    def remove(self, block: KVCacheBlock) -> None:
        super().remove(block)
        self.again.pop(block.block_id, None)
        self.hit.add(block.block_id)

    def append_n(self, blocks: list[KVCacheBlock]) -> None:
        for block in blocks:
            if block.block_id in self.hit:
                super().append_n([block])
                self.again[block.block_id] = block
            else:
                self._insert_once(block)
                self.num_free_blocks += 1
        while len(self.again) > self.most:
            # The oldest of the second segment is where the first one ends: it need not move.
            number = next(iter(self.again))
            del self.again[number]
            self.hit.discard(number)

    def append(self, block: KVCacheBlock) -> None:
        self.append_n([block])

    def _insert_once(self, block: Any) -> None:
        first = next(iter(self.again.values()), self.fake_free_list_tail)
        before = first.prev_free_block
        before.next_free_block, block.prev_free_block = block, before
        block.next_free_block, first.prev_free_block = first, block


class SLRUScheduler(AsyncScheduler):
    """vLLM's scheduler with that queue."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        queue: Any = self.kv_cache_manager.block_pool.free_block_queue
        queue.__class__ = _SegmentedQueue
        queue.hit, queue.again = set(), {}
        queue.most = int(_SHARE * queue.num_free_blocks)
