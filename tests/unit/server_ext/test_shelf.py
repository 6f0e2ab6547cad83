"""What a rank's cache most likely holds, against a cache of single tokens."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from tenuto_vllm.placement.shelf import Shelf

uses = st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 12)), max_size=30)


class Tokens:
    """An LRU cache of (session, place) whose evictions take a context's end first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.of: OrderedDict[str, int] = OrderedDict()

    def used(self, session: str, tokens: int) -> None:
        self.of.pop(session, None)
        self.of[session] = tokens
        while sum(self.of.values()) > self.capacity:
            oldest = next(iter(self.of))
            self.of[oldest] -= 1
            if self.of[oldest] <= 0:
                del self.of[oldest]


@given(uses, st.integers(1, 30))
def test_it_holds_what_a_cache_of_single_tokens_holds(
    used: list[tuple[str, int]], capacity: int
) -> None:
    shelf, tokens = Shelf(capacity, 100), Tokens(capacity)
    for session, length in used:
        shelf.used(session, length)
        tokens.used(session, length)
        assert [shelf.held(name) for name in "abcde"] == [tokens.of.get(n, 0) for n in "abcde"]


@given(uses)
def test_it_forgets_the_oldest_sessions_beyond_its_bound(used: list[tuple[str, int]]) -> None:
    shelf = Shelf(None, 2)
    for session, length in used:
        shelf.used(session, length)
        assert len(shelf) <= 2
    last = list(dict.fromkeys(session for session, _ in reversed(used)))[:2]
    assert len(shelf) == len(last)


def test_a_session_that_is_dropped_gives_its_room_back() -> None:
    shelf = Shelf(10, 100)
    shelf.used("a", 6)
    shelf.drop("a")
    shelf.used("b", 5)
    shelf.used("c", 5)
    assert [shelf.held(name) for name in "abc"] == [0, 5, 5]
    shelf.clear()
    assert len(shelf) == 0
