"""What must hold of the segmented queue between any two calls."""

from __future__ import annotations

from typing import Any

from tenuto_vllm.engine.chain import Chain
from tenuto_vllm.engine.leases import Leases
from tenuto_vllm.engine.queue import TurnQueue


def check(queue: TurnQueue, keeper: Leases | None = None) -> None:
    """Walk the list and fail where its links, marks, chains or count are wrong.

    Args:
        queue: of free blocks.
        keeper: of its leases; a chain whose session rests holds no more than is counted.
    """
    chain: Chain | None = None
    marks: list[Any] = []
    count, block = 0, queue.fake_free_list_head
    while block is not queue.fake_free_list_tail:
        following: Any = block.next_free_block
        assert following.prev_free_block is block
        block = following
        if block is queue.fake_free_list_tail:
            break
        if block.block_id >= 0:
            assert block.ref_cnt == 0
            assert chain is not None or len(marks) < 2, "a leased block in no chain"
            count += 1
        elif block.chain is None:
            assert chain is None, "a segment ends within a chain"
            marks.append(block)
        else:
            assert block is (block.chain.start if chain is None else block.chain.end)
            place = "ordinary" if len(marks) == 1 else "leased"
            # One that has given up has made all of them ordinary at once.
            assert block.chain.place == place or queue.has_failed
            chain = block.chain if chain is None else None
    assert chain is None, "a chain does not end"
    # By identity: two equal blocks would compare all that they are linked with.
    assert [id(mark) for mark in marks] == [id(queue._first), id(queue._last)]
    assert count == queue.num_free_blocks
    for lease in () if keeper is None else keeper._sessions:
        if lease.is_held and not lease.active:
            assert lease.chain.blocks >= sum(1 for _ in queue.blocks_of(lease.chain))
