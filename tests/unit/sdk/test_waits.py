"""What an agent's waits tell of the next one."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.waits import Waits

waits_ms = st.lists(st.floats(1, 1e7), min_size=1, max_size=60)


@given(waits_ms)
def test_the_gap_is_near_the_median_of_the_waits(given_ms: list[float]) -> None:
    waits = Waits()
    for wait_ms in given_ms:
        waits.note("planner", "tool", ("pytest",), wait_ms)
    gap = waits.gap_ms("planner", "tool", ("pytest",))
    low, high = statistics.median_low(given_ms), statistics.median_high(given_ms)
    assert gap is not None
    assert low * 0.94 - 1 <= gap <= high * 1.06 + 1


def test_each_agent_and_each_tool_has_a_history_of_its_own() -> None:
    waits = Waits()
    waits.note("planner", "tool", ("pytest",), 40_000)
    waits.note("planner", "tool", ("ls",), 10)
    waits.note("planner", "user", (), 9_000_000)
    waits.note("verifier", "tool", ("pytest",), 500)
    assert waits.gap_ms("planner", "tool", ("pytest",)) == pytest.approx(40_000, rel=0.06)
    assert waits.gap_ms("planner", "tool", ("ls",)) == pytest.approx(10, rel=0.1)
    assert waits.gap_ms("planner", "user") == pytest.approx(9_000_000, rel=0.06)
    assert waits.gap_ms("verifier", "tool", ("pytest",)) == pytest.approx(500, rel=0.06)
    assert waits.gap_ms("verifier", "tool", ("ls",)) is None
    assert waits.gap_ms("nobody", "tool") is None


def test_of_tools_that_run_at_once_the_slowest_is_waited_for() -> None:
    waits = Waits()
    waits.note("a", "tool", ("pytest",), 40_000)
    waits.note("a", "tool", ("ls",), 10)
    assert waits.gap_ms("a", "tool", ("ls", "pytest", "new")) == pytest.approx(40_000, rel=0.06)


def test_what_mostly_follows_is_expected_and_a_mixed_past_expects_nothing() -> None:
    waits = Waits()
    assert waits.outlook("a") is None
    for _ in range(5):
        waits.followed("a", "tool")
    waits.note("a", "tool", ("ls",), 200)
    outlook = waits.outlook("a")
    assert outlook is not None
    assert outlook.next == "tool"
    assert outlook.gap_ms == pytest.approx(200, rel=0.06)
    for _ in range(4):
        waits.followed("a", "user")
    assert waits.outlook("a") is None


def test_the_agents_and_tools_used_longest_ago_are_forgotten() -> None:
    waits = Waits(limit=10)
    for i in range(1000):
        waits.note(f"agent{i}", "tool", ("ls",), 5)
        for _ in range(3):
            waits.followed(f"agent{i}", "tool")
    assert waits.gap_ms("agent0", "tool", ("ls",)) is None
    assert waits.outlook("agent0") is None
    assert waits.outlook("agent999") is not None
    assert len(waits._histories) <= 10
    assert len(waits._outlook) <= 10
