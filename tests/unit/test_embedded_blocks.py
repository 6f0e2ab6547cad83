from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto_vllm.embedded.blocks import BlockPool, BlockTable

SIZE = 2


class Oracle:
    """The pool told naively: contents instead of hashes, lists instead of queues.

    `content[b]` is all tokens from the prompt's start to the block's end, or None. Blocks
    are in `order` of registration, so that the older of equal ones is found.
    """

    def __init__(self, num_blocks: int) -> None:
        self.queue = list(range(1, num_blocks))
        self.content: dict[int, tuple[int, ...]] = {}
        self.users: dict[int, set[int]] = {b: set() for b in self.queue}
        self.held: dict[int, tuple[list[int], list[int], int]] = {}

    def holds_at_end(self, length: int, output: int) -> int:
        return len(range(0, length + output - 1, SIZE))

    def admit(self, key: int, prompt: list[int], output: int) -> int | None:
        hits: list[int] = []
        for end in range(SIZE, len(prompt), SIZE):
            same = [b for b, text in self.content.items() if text == tuple(prompt[:end])]
            if not same:
                break
            hits.append(same[0])
        promised = sum(most - len(blocks) for blocks, _, most in self.held.values())
        most = self.holds_at_end(len(prompt), output)
        leaving = most - len([b for b in hits if b not in self.queue])
        if leaving > len(self.queue) - promised:
            return None
        self.queue = [b for b in self.queue if b not in hits]
        self.held[key] = (hits[:], prompt[:], most)
        for block in hits:
            self.users[block].add(key)
        self.fill(key, len(prompt))
        return len(hits) * SIZE

    def fill(self, key: int, computed: int) -> None:
        blocks, tokens, _ = self.held[key]
        while len(blocks) * SIZE < computed:
            block = self.queue.pop(0)
            self.content.pop(block, None)
            self.users[block].add(key)
            blocks.append(block)
        for i, block in enumerate(blocks):
            if (i + 1) * SIZE <= computed and block not in self.content:
                self.content[block] = tuple(tokens[: (i + 1) * SIZE])

    def append(self, key: int, output: list[int]) -> None:
        self.held[key][1].extend(output)
        self.fill(key, len(self.held[key][1]) - 1)

    def release(self, key: int) -> None:
        blocks, _, _ = self.held.pop(key)
        for block in blocks:
            self.users[block].discard(key)
        unused = [b for b in reversed(blocks) if not self.users[b]]
        first = [b for b in unused if b not in self.content]
        last = [b for b in unused if b in self.content]
        self.queue = first + self.queue + last


TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=9)
STEP = st.one_of(
    st.tuples(st.just("admit"), TOKENS, st.integers(1, 6)),
    st.tuples(st.just("append"), st.integers(0, 9), st.lists(st.integers(0, 1), max_size=3)),
    st.tuples(st.just("release"), st.integers(0, 9), st.none()),
)


@given(st.integers(2, 12), st.lists(STEP, max_size=40))
@settings(max_examples=400, deadline=None)
def test_the_pool_agrees_with_its_oracle_and_leaks_nothing(num_blocks: int, steps: list):
    pool, oracle = BlockPool(num_blocks, SIZE), Oracle(num_blocks)
    running: dict[int, tuple[BlockTable, int]] = {}
    for number, (step, value, more) in enumerate(steps):
        keys = sorted(running)
        if step == "admit":
            table = pool.allocate(value, more)
            assert (table and table.cached_tokens) == oracle.admit(number, value, more)
            if table:
                running[number] = (table, more)
        elif keys:
            key = keys[value % len(keys)]
            table, left = running[key]
            if step == "append":
                output = more[:left]
                running[key] = (table, left - len(output))
                if output:
                    pool.append(table, output)
                    oracle.append(key, output)
            else:
                pool.release(running.pop(key)[0])
                oracle.release(key)
        assert pool.queue() == oracle.queue
        assert {k: t.blocks for k, (t, _) in running.items()} == {
            k: blocks for k, (blocks, _, _) in oracle.held.items()
        }
    for table, _ in running.values():
        pool.release(table)
    assert pool.free == pool.total == num_blocks - 1
    assert pool.usage == 0
    assert pool.allocate([7] * (pool.total * SIZE), 1), "a promise outlived its request"


def admit(pool: BlockPool, prompt: list[int], output: int = 1) -> BlockTable:
    table = pool.allocate(prompt, output)
    assert table is not None
    return table


def test_the_last_token_is_always_computed_again():
    pool = BlockPool(10, SIZE)
    pool.release(admit(pool, [1, 2, 3, 4]))
    assert admit(pool, [1, 2, 3, 4]).cached_tokens == 2
    assert admit(pool, [1, 2, 3, 4, 5]).cached_tokens == 4


def test_a_block_is_found_only_behind_the_same_blocks():
    pool = BlockPool(10, SIZE)
    pool.release(admit(pool, [1, 2, 3, 4, 5]))
    assert admit(pool, [9, 9, 3, 4, 5]).cached_tokens == 0


def test_a_prompt_is_found_while_it_is_still_running():
    pool = BlockPool(10, SIZE)
    first = admit(pool, [1, 2, 3, 4, 5])
    assert admit(pool, [1, 2, 3, 4, 5]).blocks[:2] == first.blocks[:2]


def test_output_is_cached_up_to_the_token_before_the_last():
    pool = BlockPool(10, SIZE)
    table = admit(pool, [1, 2, 3], 4)
    for token in (4, 5, 6):
        pool.append(table, [token])
    pool.release(table)
    # Six tokens are known and five computed: two full blocks.
    assert admit(pool, [1, 2, 3, 4, 5, 6, 7]).cached_tokens == 4


def test_a_tail_is_evicted_before_its_head_and_unhashed_blocks_before_both():
    pool = BlockPool(6, SIZE)
    table = admit(pool, [1, 2, 3, 4, 5])
    assert table.blocks == [1, 2, 3]
    pool.release(table)
    assert pool.queue() == [3, 4, 5, 2, 1]


def test_an_output_that_was_promised_its_blocks_keeps_others_out():
    pool = BlockPool(5, SIZE)
    first = admit(pool, [1, 2], 5)
    assert pool.free == 3
    assert pool.allocate([3, 4, 5, 6], 1) is None
    pool.release(first)
    assert pool.allocate([3, 4, 5, 6], 1)


def test_a_reset_is_refused_while_a_block_is_in_use():
    pool = BlockPool(5, SIZE)
    table = admit(pool, [1, 2, 3])
    assert not pool.reset()
    pool.release(table)
    assert pool.reset()
    assert admit(pool, [1, 2, 3]).cached_tokens == 0
