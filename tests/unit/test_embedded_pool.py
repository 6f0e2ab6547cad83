from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto_vllm.embedded.names import Names
from tenuto_vllm.embedded.pool import Pool, Table
from tenuto_vllm.retention import RETENTIONS, Held, Waits

SIZE = 2


class Oracle:
    """The pool told naively: contents instead of keys, lists instead of arrays.

    `content[b]` is all tokens from the prompt's start to the block's end, or None. Blocks
    are in `order` of registration, so that the older of equal ones is found.
    """

    def __init__(self, blocks: int) -> None:
        self.queue = list(range(1, blocks))
        self.content: dict[int, tuple[int, ...]] = {}
        self.users: dict[int, set[int]] = {b: set() for b in self.queue}
        self.held: dict[int, tuple[list[int], list[int], int]] = {}

    def admit(self, key: int, prompt: list[int], output: list[int]) -> int | None:
        hits: list[int] = []
        for end in range(SIZE, len(prompt), SIZE):
            same = [b for b, text in self.content.items() if text == tuple(prompt[:end])]
            if not same:
                break
            hits.append(same[0])
        most = len(range(0, len(prompt) + len(output) - 1, SIZE))
        if most - len([b for b in hits if b not in self.queue]) > len(self.queue):
            return None
        self.queue = [b for b in self.queue if b not in hits]
        fresh, self.queue = self.queue[: most - len(hits)], self.queue[most - len(hits) :]
        for block in fresh:
            self.content.pop(block, None)
        for block in hits + fresh:
            self.users[block].add(key)
        self.held[key] = (hits + fresh, prompt + output[:-1], len(prompt))
        self.fill(key, len(prompt))
        return len(hits) * SIZE

    def fill(self, key: int, computed: int) -> None:
        blocks, tokens, _ = self.held[key]
        for i, block in enumerate(blocks):
            if (i + 1) * SIZE <= computed and block not in self.content:
                self.content[block] = tuple(tokens[: (i + 1) * SIZE])

    def release(self, key: int, *, finished: bool) -> None:
        if finished:
            self.fill(key, len(self.held[key][1]))
        blocks, _, _ = self.held.pop(key)
        for block in blocks:
            self.users[block].discard(key)
        unused = [b for b in reversed(blocks) if not self.users[b]]
        plain = [b for b in unused if b not in self.content]
        self.queue = plain + self.queue + [b for b in unused if b in self.content]

    def found(self, prompt: list[int]) -> int:
        texts = set(self.content.values())
        ends = range(SIZE, len(prompt), SIZE)
        hits = [tuple(prompt[:end]) in texts for end in ends]
        return ([*hits, False]).index(False)


TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=9)
STEP = st.one_of(
    st.tuples(st.just("admit"), TOKENS, TOKENS),
    st.tuples(st.sampled_from(["finish", "cancel"]), st.integers(0, 9), st.none()),
)


@given(st.integers(2, 12), st.lists(STEP, max_size=40))
@settings(max_examples=400, deadline=None)
def test_the_pool_agrees_with_its_oracle_and_leaks_nothing(blocks: int, steps: list):
    pool, oracle, names = Pool(blocks, SIZE), Oracle(blocks), Names(SIZE, 10**6)
    running: dict[int, Table] = {}
    for number, (step, value, output) in enumerate(steps):
        if step == "admit":
            full = len(value) // SIZE
            keys = names.of([*value, *output[:-1]])
            table = pool.allocate(keys[:full], len(value), len(output), keys[full:])
            assert (table and table.cached_tokens) == oracle.admit(number, value, output)
            if table:
                running[number] = table
        elif running:
            key = sorted(running)[value % len(running)]
            finished = step == "finish"
            pool.release(running.pop(key), [(0, Held("s", 0.0))], None if finished else 0)
            oracle.release(key, finished=finished)
        assert pool.free == len(oracle.queue)
        for prompt in ([0] * 9, [1] * 9, [0, 1] * 5, [1, 0, 0] * 3):
            assert pool.found(names.of(prompt), len(prompt)) == oracle.found(prompt)
    for table in running.values():
        pool.release(table, [(0, Held("s", 0.0))])
    assert pool.free == pool.total == blocks - 1
    assert pool.usage == 0


@given(st.sampled_from(sorted(RETENTIONS)), st.integers(4, 12), st.lists(STEP, max_size=40))
@settings(max_examples=200, deadline=None)
def test_every_retention_keeps_the_number_of_free_blocks_and_only_orders(name, blocks, steps):
    """Admission does not depend on the policy: a policy orders evictions and holds nothing."""
    lru, other, names = Pool(blocks, SIZE), Pool(blocks, SIZE, RETENTIONS[name]), Names(SIZE, 10**6)
    running: dict[int, tuple[Table, Table]] = {}
    for number, (step, value, output) in enumerate(steps):
        if step == "admit":
            full = len(value) // SIZE
            keys = names.of([*value, *output[:-1]])
            # Nothing is shared, so that both find the same: nothing.
            keys = keys + number * 1000
            given_ = (keys[:full], len(value), len(output), keys[full:], float(number))
            one, two = lru.allocate(*given_), other.allocate(*given_)
            assert (one is None) == (two is None)
            if one is not None and two is not None:
                running[number] = one, two
        elif running:
            key = sorted(running)[value % len(running)]
            one, two = running.pop(key)
            held = Held(f"s{key % 3}", float(number), wait=("tool", "user", "unknown")[key % 3])
            lru.release(one, [(0, held)])
            other.release(two, [(1, held), (0, held)])
        assert lru.free == other.free


def admit(pool: Pool, keys: list[int], tokens: int, now_s: float = 0.0) -> Table:
    table = pool.allocate(np.array(keys, np.int64), tokens, 1, now_s=now_s)
    assert table is not None
    return table


def has(pool: Pool, *keys: int) -> list[bool]:
    return pool.holds(np.array(keys, np.int64)).tolist()


def test_a_tail_is_evicted_before_its_head_and_unfilled_blocks_before_both():
    pool = Pool(6, SIZE)
    pool.release(admit(pool, [0, 1], 5), [(0, Held("a", 0.0))])
    admit(pool, [7, 8, 9], 6)
    assert has(pool, 0, 1) == [True, True]
    admit(pool, [5], 2)
    assert has(pool, 0, 1) == [True, False]


def test_a_reset_is_refused_while_a_block_is_in_use():
    pool = Pool(5, SIZE)
    table = admit(pool, [1], 3)
    assert not pool.reset()
    pool.release(table, [(0, Held("a", 0.0))])
    assert pool.reset()
    assert has(pool, 1) == [False]


def evicted_first(name: str, held: dict[str, Held], now_s: float) -> list[str]:
    """Return the sessions whose one block goes, first to last, as the pool runs dry."""
    pool = Pool(len(held) + 1, SIZE, RETENTIONS[name])
    tables = {session: admit(pool, [n], 2) for n, session in enumerate(held)}
    for session, one in held.items():
        pool.release(tables[session], [(0, one)])
    order: list[str] = []
    left = {n: session for n, session in enumerate(held)}
    while left:
        admit(pool, [1000 + len(left)], 2, now_s)
        gone = [n for n in left if not has(pool, n)[0]]
        order += [left.pop(n) for n in gone]
    return order


def one(session: str, released_s: float = 0.0, **said: object) -> Held:
    return Held(session, released_s)._replace(**said)


def told(session: str, gap_s: float, **said: object) -> Held:
    return one(session, expected=Waits().expect(session, "tool", gap_s), **said)


@pytest.mark.parametrize(
    ("name", "held", "now_s", "order"),
    [
        ("lru", [one("a", 0), one("b", 1), one("c", 2)], 9, "abc"),
        ("drop-final", [one("a", 0), one("b", 1, is_final=True), one("c", 2)], 9, "bac"),
        ("tool-wait", [one("a", 0, wait="tool"), one("b", 1), one("c", 2)], 100, "bca"),
        ("tool-wait", [one("a", 0, wait="tool"), one("b", 1), one("c", 2)], 121, "abc"),
        ("tool-wait", [one("a"), one("b", wait="tool"), one("c", 2, is_final=True)], 9, "cab"),
        ("expected-return", [one("a", 0, wait="tool"), one("b", 1, wait="user")], 2, "ba"),
        # It should have been back long ago, and most likely does not come.
        ("expected-return", [one("a", 0, wait="tool"), one("b", 850, wait="user")], 851, "ab"),
        ("hinted", [told("a", 100.0), one("b", 1, wait="tool")], 2, "ab"),
        ("hinted", [told("a", 40.0), told("b", 5.0)], 2, "ab"),
        ("hinted", [told("a", 40.0), told("b", 5.0, is_active=True)], 200, "ab"),
        ("hinted", [one("a", 0, wait="tool"), one("b", 1, wait="user")], 2, "ba"),
        ("belady", [one("a", 0, next_s=5.0), one("b", 1), one("c", 2, next_s=9.0)], 3, "bca"),
        ("slru", [one("a", 0, was_hit=True), one("b", 1), one("c", 2)], 3, "bca"),
    ],
)
def test_each_retention_evicts_in_the_order_of_its_table(name, held, now_s, order):
    assert "".join(evicted_first(name, {h.session: h for h in held}, now_s)) == order


def test_a_segment_of_reused_blocks_that_outgrows_its_share_gives_its_oldest():
    held = {name: one(name, n, was_hit=True) for n, name in enumerate("abcde")}
    assert evicted_first("slru", held, 9)[0] == "a"


def test_what_a_sessions_later_turn_did_not_use_goes_first_where_returns_are_expected():
    pool = Pool(4, SIZE, RETENTIONS["expected-return"])
    pool.release(admit(pool, [0], 2), [(0, one("a", 0, wait="tool"))])
    pool.release(admit(pool, [1], 2), [(0, one("b", 1, wait="user"))])
    pool.release(admit(pool, [2], 2), [(0, one("a", 2, wait="tool"))])
    admit(pool, [9], 2, 3.0)
    assert has(pool, 0, 1, 2) == [False, True, True]


def test_what_a_session_does_not_use_makes_room_for_what_it_adds():
    pool = Pool(5, SIZE, RETENTIONS["expected-return"])
    pool.release(admit(pool, [0], 2), [(0, one("b", 0, wait="user"))])
    pool.release(admit(pool, [1, 2, 3], 6), [(0, one("a", 1, wait="tool"))])
    table = pool.allocate(np.array([1, 8, 9], np.int64), 6, 1, now_s=2.0, session="a")
    assert table is not None
    assert has(pool, 0, 1, 2, 3) == [True, True, False, False]


def test_who_waits_for_room_keeps_what_it_is_about_to_find():
    pool = Pool(4, SIZE, RETENTIONS["expected-return"])
    pool.release(admit(pool, [0], 2), [(0, one("a", 0, wait="user"))])
    pool.release(admit(pool, [1], 2), [(0, one("b", 0, wait="tool"))])
    pool.await_turn("a", is_active=True)
    admit(pool, [7, 8], 4, 1.0)
    assert has(pool, 0, 1) == [True, False]
    pool.await_turn("a", is_active=False)
    pool.await_turn("nobody", is_active=True)
    admit(pool, [9], 2, 1.0)
    assert has(pool, 0) == [False]


def test_names_that_no_cache_has_are_given_again():
    names = Names(1, 4)
    first = names.of([1, 2, 3, 4, 5])
    names.tidy(lambda numbers: numbers == first[0])
    again = names.of([1, 9])
    assert again[0] == first[0]
    assert again[1] in first[1:]
