"""What is learnt of waits, against the same computed anew from all that ever happened."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto_vllm.retention import Waits
from tenuto_vllm.retention.waits import (
    LEAST_LEASE_S,
    LEAST_TOLD_LEASE_S,
    LENGTHS_S,
    MOST_LEASE_S,
)

KINDS = ("tool", "user", "unknown")
# As a client may tell them: nothing, no wait, and the most milliseconds that the wire takes.
TOLD = st.none() | st.sampled_from([0.0, 1e-3, 999_999.999]) | st.floats(0, 1e6)
SECONDS = st.sampled_from([0.0, 9.0, 300.0]) | st.floats(-1e3, 1e9)
HISTORY = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(KINDS), SECONDS, TOLD), max_size=30
)
WINDOW = 8


def near(seconds: float) -> int:
    """Return the length that is nearest, by its logarithm."""
    seconds = min(max(seconds, LENGTHS_S[0]), LENGTHS_S[-1])
    return min(
        range(len(LENGTHS_S)), key=lambda at: abs(math.log(LENGTHS_S[at]) - math.log(seconds))
    )


def normal(middle_s: float, spread: float, total: float) -> list[float]:
    lengths_s = [2.0 ** (step / 3) for step in range(93)]
    curve = [math.exp(-0.5 * (math.log(one / middle_s) / spread) ** 2) for one in lengths_s]
    folded = [*curve[: len(LENGTHS_S) - 1], sum(curve[len(LENGTHS_S) - 1 :])]
    return [value * total / sum(curve) for value in folded]


def expected_anew(history: list, session: str, kind: str, told_s: float | None) -> list[float]:
    """Return the chances of every length from all that has happened."""
    weights = normal(LENGTHS_S[near(300.0 if kind == "user" else 9.0)], 1.3, 20.0)
    of_kind = [seconds for _, wait, seconds, _ in history if wait == kind][-WINDOW:]
    for seconds in of_kind:
        weights[near(seconds)] += 1.0
    weights = [one * 4.0 / (20.0 + len(of_kind)) for one in weights]
    own = [s for name, wait, s, _ in history if (name, wait) == (session, kind)]
    for age, seconds in enumerate(reversed(own)):
        for at, one in enumerate(normal(LENGTHS_S[near(seconds)], 0.5, 0.9**age)):
            weights[at] += one
    if told_s is not None:
        squares, count = 0.49 * 20.0, 20.0
        for _, _, seconds, told in history:
            if told is not None:
                off = math.log(clipped(told) / clipped(seconds))
                squares, count = squares * 0.99 + off * off, count * 0.99 + 1.0
        error = round(min(max(math.sqrt(squares / count), 0.1), 3.0), 2)
        for at, one in enumerate(LENGTHS_S):
            off = math.log(one / LENGTHS_S[near(told_s)])
            weights[at] *= math.exp(-0.5 * (off / error) ** 2)
    return [one / sum(weights) for one in itertools.accumulate(weights)]


def clipped(seconds: float) -> float:
    return min(max(seconds, LENGTHS_S[0]), LENGTHS_S[-1])


def taught(history: list) -> Waits:
    waits = Waits(window=WINDOW)
    for session, kind, seconds, told_s in history:
        waits.learn(session, kind, seconds, told_s)
    return waits


@given(HISTORY, st.sampled_from("abcd"), st.sampled_from(KINDS), TOLD)
@settings(max_examples=300, deadline=None)
def test_an_expectation_is_that_of_the_whole_history(history, session, kind, told_s) -> None:
    expected = taught(history).expect(session, kind, told_s)
    chances = [one / expected.spread[-1] for one in expected.spread]
    assert chances == pytest.approx(expected_anew(history, session, kind, told_s), abs=1e-9)


@given(HISTORY, st.sampled_from(KINDS), TOLD)
@settings(max_examples=300, deadline=None)
def test_whatever_is_told_or_happens_an_expectation_is_finite_and_a_lease_bounded(
    history, kind, told_s
) -> None:
    waits = taught(history)
    expected = waits.expect("a", kind, told_s)
    assert LENGTHS_S[0] <= expected.wait_s <= LENGTHS_S[-1]
    least_s = LEAST_LEASE_S if told_s is None else LEAST_TOLD_LEASE_S
    assert least_s <= expected.lasts_s <= MOST_LEASE_S
    assert list(expected.spread) == sorted(expected.spread)
    assert 0.0 <= expected.spread[0] <= expected.spread[-1] < math.inf
    assert expected.spread[-1] > 0.0


@given(HISTORY, st.sampled_from(KINDS), st.floats(0, 2e6), st.floats(0, 2e6))
@settings(max_examples=300, deadline=None)
def test_a_longer_gap_is_never_taken_for_a_shorter_wait(history, kind, one_s, other_s) -> None:
    waits = taught(history)
    one, other = (waits.expect("a", kind, gap_s) for gap_s in sorted((one_s, other_s)))
    assert one.wait_s <= other.wait_s
    assert one.lasts_s <= other.lasts_s


def test_before_anything_is_learnt_the_medians_are_those_of_the_corpus() -> None:
    waits = Waits()
    assert waits.expect("a", "tool").wait_s == pytest.approx(9.0, rel=0.2)
    assert waits.expect("a", "unknown").wait_s == pytest.approx(9.0, rel=0.2)
    assert waits.expect("a", "user").wait_s == pytest.approx(300.0, rel=0.3)


def test_a_session_is_known_by_its_own_waits_and_others_by_those_of_the_fleet() -> None:
    waits = Waits()
    for _ in range(200):
        waits.learn("slow", "tool", 100.0)
    for _ in range(8):
        waits.learn("quick", "tool", 2.0)
    assert waits.expect("slow", "tool").wait_s == pytest.approx(100.0, rel=0.2)
    assert waits.expect("quick", "tool").wait_s < 4.0
    assert waits.expect("unseen", "tool").wait_s > 50.0
    assert waits.expect("quick", "user").wait_s == waits.expect("unseen", "user").wait_s


def test_a_client_that_is_right_is_believed_more_than_one_that_is_wrong() -> None:
    right, wrong = Waits(), Waits()
    for seconds in (2.0, 5.0, 40.0, 9.0) * 50:
        right.learn("a", "tool", seconds, seconds)
        wrong.learn("a", "tool", seconds, 200.0 / seconds)
    assert right.error < 0.4
    assert right.expect("a", "tool", 100.0).wait_s == pytest.approx(100.0, rel=0.3)
    assert wrong.expect("a", "tool", 100.0).wait_s < 60.0


def test_a_lease_outlasts_nearly_all_waits_that_were_seen() -> None:
    waits = Waits()
    for at in range(400):
        waits.learn(f"s{at}", "tool", 40.0 if at % 10 == 0 else 5.0)
    assert 80.0 <= waits.expect("new", "tool").lasts_s < 200.0


def test_nothing_is_left_of_a_session_that_is_forgotten() -> None:
    waits, other = Waits(), Waits()
    for seconds in (3.0, 400.0, 5.0):
        waits.learn("a", "tool", seconds)
        other.learn("b", "tool", seconds)
    waits.forget("a")
    waits.forget("never seen")
    assert len(waits) == 0
    assert waits.expect("a", "tool") == other.expect("a", "tool")


def test_memory_has_a_bound_whoever_comes() -> None:
    waits = Waits(sessions=10, window=20)
    for at in range(1000):
        waits.learn("often", "tool", 3.0)
        waits.learn(f"s{at}", KINDS[at % 3], float(at))
    assert len(waits) == 10
    assert waits.expect("often", "tool").wait_s < 5.0
    assert all(len(last) <= 20 for last in waits._last.values())
    assert all(set(kinds) <= set(KINDS) for kinds in waits._own.values())
