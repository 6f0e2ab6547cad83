"""Results pass on in the order of sending, with what a cache without end would have had."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tenuto.replay.reach import Reach
from tenuto.replay.reached import Reached
from tenuto.results import TurnResult
from tenuto.trace import Session, Trace
from tests.unit.replay.programs import turn

GROWING = Trace(
    "t", 8, (Session("s", "s", tuple(turn(*range(n + 1), at=n, tail=1) for n in range(6))),)
)


def result(n: int, rank: int | None = 0, error: str | None = None) -> TurnResult:
    return TurnResult("t", "s", "s", n, rank, 8 * n + 9, 0, 1, 0, 0, 0, 0, error=error)


def passed(order: list[int], results: dict[int, TurnResult]) -> list[TurnResult]:
    told: list[TurnResult] = []
    reached = Reached(Reach(), told.append)
    for n, one in enumerate(GROWING.sessions[0].turns):
        reached.send(n, GROWING, one)
    for n in order:
        reached.done(n, results[n])
    reached.flush()
    return told


@given(st.permutations(range(6)), st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_the_order_of_the_answers_changes_nothing(order: list[int], ranks: list[int]) -> None:
    results = {n: result(n, rank) for n, rank in enumerate(ranks)}
    told = passed(order, results)
    assert told == passed(sorted(order), results)
    assert [one.turn for one in told] == list(range(6))
    assert [one.reachable_tokens for one in told] == [8 * n for n in range(6)]
    for n, one in enumerate(told):
        before = [earlier for earlier in range(n) if ranks[earlier] == ranks[n]]
        assert one.rank_reachable_tokens == (8 * (before[-1] + 1) if before else 0)


def test_what_failed_has_left_nothing_that_is_known() -> None:
    results = {n: result(n) for n in range(6)}
    results[2] = result(2, None, "APITimeoutError")
    results[4] = replace(result(4), prompt_tokens=17)
    told = passed(list(range(6)), results)
    assert [one.reachable_tokens for one in told] == [0, 8, None, 16, None, 32]


def test_at_the_end_what_has_been_answered_is_passed_on_without_the_rest() -> None:
    results = {n: result(n) for n in range(6)}
    assert [one.turn for one in passed([1, 4, 3], results)] == [1, 3, 4]
