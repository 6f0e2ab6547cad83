"""The ledger of copies equals caches of real blocks, whatever happens to the sessions."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto_vllm.placement.split import Copies

BLOCK = 16
NODES = ("p0", "p1", "d0", "d1")
SESSIONS = ("a", "b", "c")


class Blocks:
    """What the nodes cache, as vLLM does: full blocks, each known by all tokens up to its end."""

    def __init__(self) -> None:
        self.cached: dict[str, set[tuple[int, ...]]] = {node: set() for node in NODES}
        self.contexts: dict[str, list[int]] = {}
        self.fresh = 0

    def new(self, count: int) -> list[int]:
        self.fresh += count
        return list(range(self.fresh - count, self.fresh))

    def put(self, node: str, tokens: list[int]) -> None:
        for end in range(BLOCK, len(tokens) + 1, BLOCK):
            self.cached[node].add(tuple(tokens[:end]))

    def found(self, node: str, prompt: list[int]) -> int:
        end = BLOCK
        while end <= len(prompt) and tuple(prompt[:end]) in self.cached[node]:
            end += BLOCK
        return end - BLOCK


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["local", "remote", "edit", "fork", "restart", "end"]),
        st.sampled_from(SESSIONS),
        st.sampled_from(SESSIONS),
        st.sampled_from(NODES[:2]),
        st.sampled_from(NODES[2:]),
        st.integers(0, 90),
        st.integers(1, 90),
        st.integers(0, 40),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_what_is_expected_is_what_caches_of_real_blocks_have(
    steps: list[tuple[str, str, str, str, str, int, int, int]],
) -> None:
    blocks, copies, related = Blocks(), Copies(BLOCK), set[str]()
    for kind, session, other, prefill, decode, keep, new, output in steps:
        context = blocks.contexts.setdefault(session, [])
        if kind == "restart":
            blocks.cached[decode].clear()
            copies.lost(decode)
        elif kind == "end":
            del blocks.contexts[session]
            copies.forget(session)
        elif kind == "fork":
            if context and other not in blocks.contexts:
                blocks.contexts[other] = context[:keep]
                copies.forked(other, session, keep)
                related |= {session, other}
        else:
            if kind == "edit":
                del context[keep:]
                copies.edited(session, keep)
            prompt = context + blocks.new(new)
            for node in NODES:
                expected, found = copies.expected(session, node), blocks.found(node, prompt)
                # What a relative computes later of what they share, it does not follow.
                assert expected == found or (expected < found and session in related)
            if kind == "remote":
                blocks.put(prefill, prompt)
                copies.prefilled(session, prefill, len(prompt))
            # The last token that is written was never fed back.
            answer = blocks.new(output)
            blocks.put(decode, prompt + answer[: max(0, output - 1)])
            copies.decoded(session, decode, len(prompt), output)
            blocks.contexts[session] = prompt + answer


def test_a_prefill_node_has_the_prompt_and_a_decode_node_all_but_the_last_token() -> None:
    copies = Copies(BLOCK)
    copies.prefilled("s", "p0", 100)
    copies.decoded("s", "d0", 100, 13)
    assert copies.of("s") == {"p0": 96, "d0": 112}
    copies.decoded("s", "d0", 100, 12)
    assert copies.expected("s", "d0") == 96


def test_what_is_kept_bounds_what_is_expected_and_changes_nothing() -> None:
    copies = Copies(BLOCK)
    copies.decoded("s", "d0", 160, 1)
    assert copies.expected("s", "d0", keep=100) == 96
    assert copies.expected("s", "d0") == 160


def test_a_context_that_became_shorter_was_rewritten_even_if_nobody_says_where() -> None:
    copies = Copies(BLOCK)
    copies.prefilled("s", "p0", 320)
    copies.decoded("s", "d0", 320, 40)
    copies.decoded("s", "d1", 100, 1)
    assert copies.of("s") == {"p0": 96, "d0": 96, "d1": 96}


def test_a_report_lowers_and_raises_what_a_node_has() -> None:
    copies = Copies(BLOCK)
    copies.decoded("s", "d0", 320, 1)
    copies.reported("s", "d0", 70)
    assert copies.expected("s", "d0") == 64
    copies.reported("s", "d0", 160)
    assert copies.expected("s", "d0") == 160


def test_a_child_has_what_it_shares_where_its_parent_has_it() -> None:
    copies = Copies(BLOCK)
    copies.prefilled("parent", "p0", 160)
    copies.decoded("parent", "d0", 160, 40)
    copies.forked("child", "parent", keep=170)
    assert copies.of("child") == {"p0": 160, "d0": 160}
    copies.forked("whole", "parent")
    assert copies.of("whole") == {"p0": 160, "d0": 192}
    copies.forked("orphan", "nobody")
    assert copies.of("orphan") == {}


def test_the_session_that_was_unseen_for_longest_is_forgotten_first() -> None:
    copies = Copies(BLOCK, sessions=2)
    for session in ("a", "b", "a", "c"):
        copies.decoded(session, "d0", 64, 1)
    assert [copies.expected(session, "d0") for session in "abc"] == [64, 0, 64]
    assert len(copies) == 2


class Lru(Blocks):
    """Caches that let go of what was used longest ago, the end of a prompt before its start."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.order: dict[str, OrderedDict[tuple[int, ...], None]] = {
            n: OrderedDict() for n in NODES
        }
        self.capacity = capacity

    def put(self, node: str, tokens: list[int]) -> None:
        order = self.order[node]
        for end in reversed(range(BLOCK, len(tokens) + 1, BLOCK)):
            order[tuple(tokens[:end])] = None
            order.move_to_end(tuple(tokens[:end]))
        while len(order) > self.capacity:
            order.popitem(last=False)
        self.cached[node] = set(order)


LRU_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["local", "remote", "edit", "end"]),
        st.sampled_from(SESSIONS),
        st.sampled_from(NODES[:2]),
        st.sampled_from(NODES[2:]),
        st.integers(0, 200),
        st.integers(1, 60),
        st.integers(1, 30),
    ),
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(LRU_STEPS, st.integers(12, 40))
def test_in_caches_of_a_known_size_it_knows_what_was_evicted(
    steps: list[tuple[str, str, str, str, int, int, int]], capacity_blocks: int
) -> None:
    copies, blocks = Copies(BLOCK), Lru(capacity_blocks)
    for node in NODES:
        copies.sized(node, capacity_blocks * BLOCK)
    for kind, session, prefill, decode, keep, new, output in steps:
        context = blocks.contexts.setdefault(session, [])
        if kind == "end":
            del blocks.contexts[session]
            copies.forget(session)
            continue
        if kind == "edit":
            del context[keep:]
            copies.edited(session, keep)
        prompt, answer = context + blocks.new(new), blocks.new(output)
        if (len(prompt) + output) // BLOCK > capacity_blocks:
            blocks.contexts[session] = []
            copies.forget(session)
            continue
        for node in NODES:
            assert copies.expected(session, node) == blocks.found(node, prompt)
        if kind == "remote":
            copies.sent(session, prefill, len(prompt))
            copies.prefilled(session, prefill, len(prompt))
            blocks.put(prefill, prompt)
        copies.sent(session, decode, len(prompt))
        copies.decoded(session, decode, len(prompt), output)
        blocks.put(decode, prompt + answer[:-1])
        blocks.contexts[session] = prompt + answer


def test_what_was_rewritten_goes_before_what_was_kept_and_takes_room_until_it_does() -> None:
    copies = Copies(BLOCK)
    copies.sized("d0", 10 * BLOCK)
    copies.decoded("a", "d0", 8 * BLOCK, 1)
    copies.edited("a", 2 * BLOCK)
    copies.decoded("b", "d0", 8 * BLOCK, 1)
    assert (copies.expected("a", "d0"), copies.expected("b", "d0")) == (2 * BLOCK, 8 * BLOCK)
    copies.decoded("b", "d0", 9 * BLOCK, 1)
    assert copies.expected("a", "d0") == BLOCK


def test_a_prompt_takes_room_from_when_it_is_sent() -> None:
    copies = Copies(BLOCK)
    copies.sized("d0", 10 * BLOCK)
    copies.decoded("a", "d0", 8 * BLOCK, 1)
    copies.sent("b", "d0", 6 * BLOCK)
    assert copies.expected("a", "d0") == 4 * BLOCK


def test_a_child_takes_room_for_all_that_its_parent_does_not_have_there() -> None:
    copies = Copies(BLOCK)
    for node in ("d0", "d1"):
        copies.sized(node, 10 * BLOCK)
    copies.decoded("parent", "d0", 6 * BLOCK, 1)
    copies.forked("child", "parent")
    copies.decoded("child", "d0", 8 * BLOCK, 1)
    copies.decoded("child", "d1", 8 * BLOCK, 1)
    assert copies.of("parent") == {"d0": 6 * BLOCK}
    copies.decoded("other", "d0", 2 * BLOCK, 1)
    assert copies.of("parent") == {"d0": 6 * BLOCK}
    copies.decoded("other", "d1", 4 * BLOCK, 1)
    assert copies.of("child") == {"d0": 8 * BLOCK, "d1": 6 * BLOCK}


def test_a_report_of_more_takes_room_for_it() -> None:
    copies = Copies(BLOCK)
    copies.sized("d0", 10 * BLOCK)
    copies.decoded("a", "d0", 2 * BLOCK, 1)
    copies.decoded("b", "d0", 2 * BLOCK, 1)
    copies.reported("a", "d0", 9 * BLOCK)
    assert (copies.expected("a", "d0"), copies.expected("b", "d0")) == (9 * BLOCK, BLOCK)


@pytest.mark.parametrize("size", [1, 16, 128])
def test_tokens_are_whole_blocks_and_never_negative(size: int) -> None:
    copies = Copies(size)
    assert copies.floor(-5) == 0
    assert copies.floor(3 * size + size // 2) == (3 * size if size > 1 else 3)
