"""The segmented queue against a naive one of three plain lists, step by step."""

from __future__ import annotations

import random
import warnings
from typing import Any

import pytest

with warnings.catch_warnings():
    # What vLLM's own imports warn of is no failure of a test of ours.
    warnings.simplefilter("ignore")
    from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue, KVCacheBlock

    from tenuto_vllm.engine.chain import Chain
    from tenuto_vllm.engine.queue import TurnQueue
    from tests.vllm.invariants import check

BLOCKS, CHAINS, STEPS = 60, 5, 4000


class Naive:
    """What the queue is to do, with lists alone: each entry is a block's id or a chain's marks."""

    def __init__(self) -> None:
        self.first: list[Any] = []
        self.ordinary: list[Any] = list(range(BLOCKS))
        # Of chains in the order in which they were leased.
        self.leased: dict[int, list[int]] = {}
        self.demoted: dict[int, list[int]] = {}

    def order(self) -> list[int]:
        ordinary: list[int] = []
        for entry in self.ordinary:
            ordinary += self.demoted[entry[1]] if isinstance(entry, tuple) else [entry]
        return [*self.first, *ordinary, *(one for chain in self.leased.values() for one in chain)]

    def remove(self, number: int) -> None:
        for held in (self.first, self.ordinary, *self.leased.values(), *self.demoted.values()):
            if number in held:
                held.remove(number)

    def pop(self, n: int) -> list[int]:
        taken = self.order()[:n]
        for number in taken:
            self.remove(number)
        return taken


def queue_of(blocks: list[KVCacheBlock]) -> TurnQueue:
    return TurnQueue(FreeKVCacheBlockQueue(blocks), len(blocks))


@pytest.mark.parametrize("seed", range(4))
def test_the_queue_hands_out_in_the_order_of_three_plain_lists(seed: int) -> None:
    draw = random.Random(seed)
    blocks = [KVCacheBlock(block_id=number) for number in range(BLOCKS)]
    queue, naive = queue_of(blocks), Naive()
    chains = [Chain() for _ in range(CHAINS)]
    used: list[int] = []

    def take(n: int) -> None:
        got = [block.block_id for block in queue.popleft_n(n)]
        assert got == naive.pop(n)
        used.extend(got)
        for number in got:
            blocks[number].ref_cnt = 1

    def hit() -> None:
        number = draw.choice(naive.order())
        queue.remove(blocks[number])
        naive.remove(number)
        blocks[number].ref_cnt = 1
        used.append(number)

    def free(n: int) -> None:
        numbers = [used.pop(draw.randrange(len(used))) for _ in range(min(n, len(used)))]
        for number in numbers:
            blocks[number].ref_cnt = 0
            owner = draw.choice([None, *chains, queue.discard])
            queue.owners[number] = owner
            queue.has_owners = True
            if owner is queue.discard:
                naive.first.append(number)
            elif owner is not None and owner.is_open:
                naive.leased[chains.index(owner)].append(number)
            else:
                naive.ordinary.append(number)
        queue.append_n([blocks[number] for number in numbers])

    def move() -> None:
        index = draw.randrange(CHAINS)
        chain = chains[index]
        what = draw.choice(["lease", "demote", "cut", "drop"])
        if what == "lease" and chain.place != "leased":
            naive.leased[index] = naive.demoted.pop(index, [])
            naive.ordinary = [one for one in naive.ordinary if one != ("chain", index)]
            queue.lease(chain)
        elif what == "demote" and chain.place == "leased":
            naive.demoted[index] = naive.leased.pop(index)
            naive.ordinary.append(("chain", index))
            queue.demote(chain)
        elif what == "cut" and chain.place == "leased":
            most = draw.randint(1, 8)
            cut, naive.leased[index] = naive.leased[index][:most], naive.leased[index][most:]
            naive.ordinary += cut
            assert queue.cut(chain, most) == len(cut)
        elif what == "drop" and chain.place:
            naive.first += naive.leased.pop(index, None) or naive.demoted.pop(index, [])
            naive.demoted.pop(index, None)
            naive.ordinary = [one for one in naive.ordinary if one != ("chain", index)]
            queue.drop(chain)

    def room(need: int) -> None:
        # As the keeper does: whole chains, the first ones first.
        for index in list(naive.leased):
            if need <= 0:
                return
            need -= len(naive.leased[index])
            naive.demoted[index] = naive.leased.pop(index)
            naive.ordinary.append(("chain", index))
            queue.demote(chains[index])

    queue.make_room = room
    for _ in range(STEPS):
        free_blocks = queue.num_free_blocks
        kind = draw.random()
        if kind < 0.3 and free_blocks:
            take(draw.randint(1, min(12, free_blocks)))
        elif kind < 0.45 and free_blocks:
            hit()
        elif kind < 0.8 and used:
            free(draw.randint(1, 12))
        else:
            move()
        check(queue)
        # A demoted chain that was reached is closed; what it held is at the front, in order.
        for index, chain in enumerate(chains):
            if not chain.place and index in naive.demoted:
                at = naive.ordinary.index(("chain", index))
                naive.ordinary[at : at + 1] = naive.demoted.pop(index)
        assert [block.block_id for block in queue.get_all_free_blocks()] == naive.order()
        assert queue.num_free_blocks == len(naive.order())
        leased = sum(map(len, naive.leased.values()))
        assert queue.segments() == (
            len(naive.first),
            len(naive.order()) - len(naive.first) - leased,
            leased,
        )


def test_blocks_that_no_cache_holds_are_taken_before_all_others() -> None:
    blocks = [KVCacheBlock(block_id=number) for number in range(8)]
    queue = queue_of(blocks)
    taken = queue.popleft_n(2)
    queue.prepend_n(taken)
    assert queue.popleft() is taken[0]
    check(queue)


def test_a_keeper_that_fails_costs_the_order_and_no_block() -> None:
    blocks = [KVCacheBlock(block_id=number) for number in range(8)]
    queue, chain = queue_of(blocks), Chain()

    def fails(_need: int) -> None:
        raise RuntimeError

    queue.make_room = fails
    taken = queue.popleft_n(8)
    queue.lease(chain)
    queue.owners[:] = [chain] * 8
    queue.has_owners = True
    queue.append_n(taken)
    assert queue.segments() == (0, 0, 8)
    assert [block.block_id for block in queue.popleft_n(8)] == list(range(8))
    check(queue)
    with pytest.raises(ValueError, match="No free blocks"):
        queue.popleft()


def test_a_cursor_of_another_part_of_vllm_walks_over_the_marks() -> None:
    blocks = [KVCacheBlock(block_id=number) for number in range(8)]
    queue, chain = queue_of(blocks), Chain()
    taken = queue.popleft_n(4)
    queue.lease(chain)
    queue.owners[:4] = [chain] * 4
    queue.append_n(taken)
    assert [block.block_id for block in queue.iter_blocks_after(blocks[6])] == [7, 0, 1, 2, 3]
