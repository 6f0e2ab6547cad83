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


class Pair:
    """The queue, and three lists that say what it is to do; each step is done to both.

    A demoted chain stands among the ordinary blocks as ("chain", index).
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.blocks = [KVCacheBlock(block_id=number) for number in range(BLOCKS)]
        self.queue = queue_of(self.blocks)
        self.queue.make_room = self.room
        self.chains = [Chain() for _ in range(CHAINS)]
        self.used: list[int] = []
        self.first: list[int] = []
        self.ordinary: list[Any] = list(range(BLOCKS))
        # In the order in which they were leased.
        self.leased: dict[int, list[int]] = {}
        self.demoted: dict[int, list[int]] = {}

    def order(self) -> list[int]:
        ordinary: list[int] = []
        for entry in self.ordinary:
            ordinary += self.demoted[entry[1]] if isinstance(entry, tuple) else [entry]
        return [*self.first, *ordinary, *(one for chain in self.leased.values() for one in chain)]

    def remove(self, number: int) -> None:
        held = (self.first, self.ordinary, *self.leased.values(), *self.demoted.values())
        for blocks in held:
            if number in blocks:
                blocks.remove(number)
        self.blocks[number].ref_cnt = 1
        self.used.append(number)

    def step(self) -> None:
        free = self.queue.num_free_blocks
        kind = self.draw.random()
        if kind < 0.3 and free:
            self.take(self.draw.randint(1, min(12, free)))
        elif kind < 0.45 and free:
            self.hit()
        elif kind < 0.8 and self.used:
            self.free(min(self.draw.randint(1, 12), len(self.used)))
        else:
            what = self.draw.choice([self.lease, self.demote, self.cut, self.drop])
            what(self.draw.randrange(CHAINS))
        self.close()

    def take(self, many: int) -> None:
        wanted = self.order()[:many]
        assert [block.block_id for block in self.queue.popleft_n(many)] == wanted
        for number in wanted:
            self.remove(number)

    def hit(self) -> None:
        number = self.draw.choice(self.order())
        self.queue.remove(self.blocks[number])
        self.remove(number)

    def free(self, many: int) -> None:
        numbers = [self.used.pop(self.draw.randrange(len(self.used))) for _ in range(many)]
        self.queue.has_owners = True
        for number in numbers:
            self.blocks[number].ref_cnt = 0
            owner = self.draw.choice([None, *self.chains, self.queue.discard])
            self.queue.owners[number] = owner
            if owner is self.queue.discard:
                self.first.append(number)
            elif owner is not None and owner.is_open:
                self.leased[self.chains.index(owner)].append(number)
            else:
                self.ordinary.append(number)
        self.queue.append_n([self.blocks[number] for number in numbers])

    def lease(self, index: int) -> None:
        if self.chains[index].place != "leased":
            self.leased[index] = self.forgotten(index)
            self.queue.lease(self.chains[index])

    def demote(self, index: int) -> None:
        if index in self.leased:
            self.demoted[index] = self.leased.pop(index)
            self.ordinary.append(("chain", index))
            self.queue.demote(self.chains[index])

    def cut(self, index: int) -> None:
        if index in self.leased:
            most = self.draw.randint(1, 8)
            cut, self.leased[index] = self.leased[index][:most], self.leased[index][most:]
            self.ordinary += cut
            assert self.queue.cut(self.chains[index], most) == len(cut)

    def drop(self, index: int) -> None:
        if self.chains[index].place:
            self.first += self.leased.pop(index, []) or self.forgotten(index)
            self.queue.drop(self.chains[index])

    def room(self, need: int) -> None:
        for index in list(self.leased):
            if need > 0:
                need -= len(self.leased[index])
                self.demote(index)

    def forgotten(self, index: int) -> list[int]:
        self.ordinary = [entry for entry in self.ordinary if entry != ("chain", index)]
        return self.demoted.pop(index, [])

    def close(self) -> None:
        """A demoted chain that was reached is closed; what it holds keeps its place."""
        for index in list(self.demoted):
            if not self.chains[index].place:
                at = self.ordinary.index(("chain", index))
                self.ordinary[at : at + 1] = self.demoted.pop(index)


def queue_of(blocks: list[KVCacheBlock]) -> TurnQueue:
    return TurnQueue(FreeKVCacheBlockQueue(blocks), len(blocks)).take_over()


@pytest.mark.parametrize("seed", range(4))
def test_the_queue_hands_out_in_the_order_of_three_plain_lists(seed: int) -> None:
    pair = Pair(seed)
    for _ in range(STEPS):
        pair.step()
        check(pair.queue)
        order = pair.order()
        leased = sum(map(len, pair.leased.values()))
        assert [block.block_id for block in pair.queue.get_all_free_blocks()] == order
        assert pair.queue.segments() == (
            len(pair.first),
            len(order) - len(pair.first) - leased,
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
