"""The order among sessions, against comparing every two of them by the rules in words."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto_vllm.retention import Leased, Waits
from tenuto_vllm.retention.order import key, left_s, standing
from tenuto_vllm.retention.waits import LENGTHS_S

WAITS = Waits()
SPREADS = [(), *(WAITS.expect("", "tool", told).spread for told in (None, 0.0, 20.0, 1e6))]
LEASED = st.builds(
    Leased,
    ended_s=st.floats(0, 2000),
    wait_s=st.floats(0, 1e6),
    spread=st.sampled_from(SPREADS),
    born_s=st.floats(0, 100),
    prio=st.integers(-8, 8),
    is_active=st.booleans(),
    is_final=st.booleans(),
    is_superseded=st.booleans(),
)
NOW_S = 2000.0


def left_anew(age_s: float, wait_s: float, spread: tuple[float, ...]) -> float:
    """Return the median of what is left, by looking at every length."""
    if not spread:
        return wait_s - age_s if age_s < wait_s else age_s
    each = [one - before for one, before in zip(spread, (0.0, *spread), strict=False)]
    left = [
        (length_s - age_s, chance)
        for length_s, chance in zip(LENGTHS_S, each, strict=True)
        if length_s > age_s
    ]
    total, so_far = sum(chance for _, chance in left), 0.0
    if total < 1e-9 * spread[-1]:
        return age_s
    for seconds, chance in left:
        so_far += chance
        if so_far >= total / 2 - 1e-12:
            return max(seconds, age_s) if seconds == left[-1][0] else seconds
    raise AssertionError("the chances do not add up")


def goes_before(one: Leased, other: Leased, now_s: float) -> bool:
    """Return whether the rules send one first; never where they see no difference."""

    def group(leased: Leased) -> int:
        if leased.is_superseded:
            return 0
        return 3 if leased.is_active else 1 if leased.is_final else 2

    if group(one) != group(other):
        return group(one) < group(other)
    if group(one) < 2:
        return one.ended_s < other.ended_s
    if one.prio != other.prio:
        return one.prio < other.prio
    if group(one) == 3:
        return one.ended_s < other.ended_s
    back = [
        left_anew(step_anew(now_s - leased.ended_s), leased.wait_s, leased.spread)
        for leased in (one, other)
    ]
    if back[0] != back[1]:
        return back[0] > back[1]
    return one.born_s > other.born_s


def step_anew(age_s: float) -> float:
    """Return the last of the ages at which the order changes, by counting up to it."""
    step_s, steps = 0.0, 0
    while 0.25 * 2.0 ** (steps / 4) <= age_s:
        step_s, steps = 0.25 * 2.0 ** (steps / 4), steps + 1
    return step_s


@given(st.lists(LEASED, min_size=2, max_size=8))
@settings(max_examples=300, deadline=None)
def test_no_session_goes_before_one_that_every_rule_sends_first(leased: list[Leased]) -> None:
    ordered = sorted(leased, key=lambda one: key(one, NOW_S))
    for at, one in enumerate(ordered):
        assert not any(goes_before(later, one, NOW_S) for later in ordered[at + 1 :])


@given(st.floats(0, 5000), st.floats(0, 1e6), st.sampled_from(SPREADS))
@settings(max_examples=500, deadline=None)
def test_what_is_left_of_a_wait_is_its_median_over_all_longer_ones(age_s, wait_s, spread) -> None:
    assert left_s(age_s, wait_s, spread) == pytest.approx(left_anew(age_s, wait_s, spread))


@given(LEASED, st.floats(0, 1e6))
@settings(max_examples=500, deadline=None)
def test_a_standing_is_finite_and_stays_until_it_says_so(leased: Leased, age_s: float) -> None:
    now_s = leased.ended_s + age_s
    where, until_s = standing(leased, now_s)
    assert all(math.isfinite(value) for value in where)
    if math.isfinite(until_s):
        between_s = now_s + 0.999 * max(0.0, until_s - now_s)
        assert key(leased, between_s) == where


def waiting(ended_s: float, gap_s: float | None, *, born_s: float = 0.0) -> Leased:
    expected = WAITS.expect("", "tool", gap_s)
    return Leased(ended_s, expected.wait_s, expected.lasts_s, expected.spread, born_s)


def test_who_is_expected_back_last_goes_first_whether_told_or_not() -> None:
    told_soon, told_late, untold = waiting(0.0, 2.0), waiting(0.0, 200.0), waiting(0.0, None)
    assert sorted([told_soon, untold, told_late], key=lambda one: key(one, 0.0)) == [
        told_late,
        untold,
        told_soon,
    ]


def test_who_is_long_overdue_goes_before_who_has_just_begun_to_wait() -> None:
    overdue, fresh = waiting(0.0, 2.0), waiting(59.0, 9.0)
    assert key(overdue, 60.0) < key(fresh, 60.0)
    assert key(overdue, 1.0) > key(waiting(1.0, 9.0), 1.0)


def test_of_equals_the_youngest_run_goes_first() -> None:
    old, young = waiting(0.0, None, born_s=1.0), waiting(0.0, None, born_s=2.0)
    assert key(young, 3.0) < key(old, 3.0)


def test_a_session_with_a_request_stays_behind_all_others_but_for_what_it_left() -> None:
    active = waiting(0.0, 500.0)._replace(is_active=True, prio=-8)
    assert key(active, 9.0) > key(waiting(0.0, 2.0)._replace(prio=8), 9.0)
    assert key(active._replace(is_superseded=True), 9.0) < key(
        waiting(0.0, 2.0)._replace(is_final=True, prio=-8), 9.0
    )


def test_a_wait_that_outlasts_all_is_expected_to_last_as_long_again() -> None:
    assert left_s(5000.0, 9.0, SPREADS[1]) == 5000.0
    assert left_s(20.0, 9.0) == 20.0
