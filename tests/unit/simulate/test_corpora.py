"""The corpora of the measured simulations."""

from __future__ import annotations

import pytest

from benchmarks.simulator_corpora import inheriting, known_of, resampled
from benchmarks.simulator_skew import HEAVY_SHARE, fan_out, heavy
from tenuto.simulate import Setup, simulate
from tenuto.trace import Session, Trace, Turn


def turn(*runs: tuple[int, int], at_s: float = 0.0) -> Turn:
    return Turn(tuple(runs), 16 * sum(count for _, count in runs) + 3, 5, at_s, at_s + 1.0)


ROOT = Session("main", "main", (turn((1, 10)), turn((1, 20), at_s=5.0), turn((1, 30), at_s=20.0)))
CHILD = Session("child", "child", (turn((1, 4), at_s=7.0),), "main", 1, 2)
FORKING = Trace("forking", 16, (ROOT, CHILD))
PLAIN = Trace("plain", 16, (ROOT,))


def test_an_inheriting_child_begins_with_the_prompt_that_spawned_it_and_finds_it_cached() -> None:
    made = inheriting(FORKING)
    root, child = made.sessions
    assert (root, child.fork) == (ROOT, "inherit")
    assert child.turns[0].blocks[0] == (1, 20)
    assert child.turns[0].input_tokens == 20 * 16 + 4 * 16 + 3
    setup = Setup(ranks=1, tokens_per_rank=10_000)
    cached = {(one.session, one.turn): one.cached_tokens for one in simulate([made], setup).turns}
    assert cached["child", 0] == 20 * 16
    assert inheriting(PLAIN) == PLAIN


def test_what_is_resampled_has_ids_of_its_own_and_the_share_of_forks_that_was_asked_for() -> None:
    traces = [FORKING, *(Trace(f"plain-{n}", 16, (ROOT,)) for n in range(9))]
    drawn = list(resampled(traces, 500, 0.44))
    assert len({trace.id for trace in drawn}) == 500
    assert 0.38 < sum(len(trace.sessions) > 1 for trace in drawn) / 500 < 0.5
    assert sum(len(trace.sessions) > 1 for trace in resampled(traces, 500)) < 100


def test_what_bounds_whole_sessions_is_what_can_be_counted_by_hand() -> None:
    reset = Session("main", "main", (turn((1, 10)), turn((1, 2), (100, 8))))
    known = known_of([Trace("a", 16, (reset,)), *[Trace(n, 16, (ROOT,)) for n in "bcd"]], 2)
    computed = {"reset": 163 + 8 * 16 + 3, "root": 163 + 2 * (10 * 16 + 3)}
    total = computed["reset"] + 3 * computed["root"]
    assert known["largest"] == computed["root"]
    assert known["behind_little"] == pytest.approx((8 * 16 + 3) / total)
    assert known["dealt_known"] == pytest.approx(2 * 2 * computed["root"] / total)
    assert set(known["dealt_unknown"]) == {known["dealt_known"]}


def test_one_session_has_its_share_of_the_skewed_calls_and_64_children_come_at_once() -> None:
    traces = list(heavy())
    calls = sum(trace.requests for trace in traces)
    assert traces[0].requests / calls == pytest.approx(HEAVY_SHARE, abs=0.001)
    children = [one for one in next(fan_out()).sessions if one.parent]
    assert len(children) == 64
    assert {(one.fork, one.spawned_after) for one in children} == {("inherit", 7)}
