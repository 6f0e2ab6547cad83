"""Whose a block is when sessions share a prefix.

A block is its session's that computed it, so that a fork leaves its parent's prefix with the
parent. Whoever uses it as well is its heir, and gets it when the owner gives it up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tenuto_vllm.engine.lease import Lease, alive
from tenuto_vllm.engine.queue import TurnQueue

# Of a block's heirs the newest are remembered.
_HEIRS = 4


def claim(
    queue: TurnQueue, lease: Lease, table: Sequence[Any], hits: int, *, is_whole: bool = False
) -> None:
    """Make a turn's blocks its session's, but for those of other living sessions.

    Args:
        queue: of the free blocks.
        lease: of the session.
        table: the turn's blocks.
        hits: how many leading ones may be of another session or another turn.
        is_whole: the table is of several kinds of cache, and so in no one order.
    """
    owners, chain = queue.owners, lease.chain
    hits = len(table) if is_whole else min(hits, len(table))
    looked = hits
    if hits and not is_whole and owners[table[hits - 1].block_id] is chain:
        # What follows the other sessions' blocks was this one's a turn ago.
        looked = min(hits, lease.foreign)
    lease.foreign = 0
    for at in range(looked):
        if _claim(queue, lease, table[at].block_id):
            lease.foreign = at + 1
    owned = False
    for block in table[hits:]:
        number = block.block_id
        if owners[number] is None:
            owners[number] = chain
        elif owners[number] is not chain:
            owned = True
    if owned:
        # Of a request that was preempted, and found another's blocks as it came back.
        for at, block in enumerate(table[hits:], hits):
            if _claim(queue, lease, block.block_id):
                lease.foreign = at + 1


def passed(queue: TurnQueue, table: Sequence[Any]) -> None:
    """Note what a request of no session has used of the sessions' blocks: how it begins."""
    for block in table:
        number: int = block.block_id
        if queue.owners[number] is None:
            return
        _share(queue, number)


def adopt(queue: TurnQueue, lease: Lease, number: int) -> bool:
    """Make a checkpoint a session's; return False where it is another living one's."""
    owner = queue.owners[number]
    if owner is not None and owner is not lease.chain and alive(owner):
        return False
    queue.owners[number] = lease.chain
    if number not in lease.states:
        lease.states.append(number)
    return True


def abandon(queue: TurnQueue, lease: Lease, numbers: Iterable[int]) -> None:
    """Take checkpoints of a request that was aborted from its session."""
    left = {number for number in numbers if number in lease.states}
    if not left:
        return
    for block in queue.blocks_of(lease.chain):
        if block.block_id in left:
            queue.put(block, None)
    for number in left:
        lease.states.remove(number)
        queue.owners[number] = None


def gather(queue: TurnQueue, lease: Lease, blocks: Sequence[Any]) -> None:
    """Let a session's checkpoints join its other blocks: they were freed before it had a lease."""
    if lease.is_held:
        for number in lease.states:
            block = blocks[number]
            if block.ref_cnt == 0 and queue.owners[number] is lease.chain:
                queue.put(block, lease.chain)


def hand_over(queue: TurnQueue, lease: Lease) -> None:
    """Give the free blocks of a session that others use as well to those who are alive."""
    if not queue.heirs:
        return
    for block in queue.blocks_of(lease.chain):
        heirs = queue.heirs.pop(block.block_id, ())
        if heirs:
            living = tuple(one for one in heirs if one is not lease.chain and alive(one))
            heir = living[0] if living else None
            if living[1:]:
                queue.heirs[block.block_id] = living[1:]
            queue.owners[block.block_id] = heir
            queue.put(block, heir)
            lease.chain.blocks = max(0, lease.chain.blocks - 1)


def _claim(queue: TurnQueue, lease: Lease, number: int) -> bool:
    """Take a block whose owner is dead; return whether it is another living one's."""
    owner = queue.owners[number]
    if owner is lease.chain:
        return False
    if owner is None or not alive(owner):
        if owner is not None:
            queue.shared.add(number)
        queue.owners[number] = lease.chain
        return False
    _share(queue, number)
    heirs = queue.heirs.get(number, ())
    if lease.chain not in heirs:
        if len(heirs) == _HEIRS:
            heirs = tuple(one for one in heirs if alive(one))
        queue.heirs[number] = (lease.chain, *heirs)[:_HEIRS]
    return True


def _share(queue: TurnQueue, number: int) -> None:
    queue.shared.add(number)
    owner = queue.owners[number]
    if owner is not None:
        # The hit took it out of the owner's chain, and it is counted again as it joins that.
        owner.is_uncounted = True
