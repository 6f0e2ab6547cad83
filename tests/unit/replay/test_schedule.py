from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.replay import CallRef, Due, Mode, Schedule
from tenuto.trace.model import Session, Trace
from tests.unit.replay.programs import FORKS, traces, turn

MODES: tuple[Mode, ...] = ("closed", "fixed", "asap")


class Played:
    """What a run of a schedule did, each call taking `lasts` of its place's seconds."""

    def __init__(self, given: Sequence[Trace], lasts: Sequence[float] = (1.0,), **how: Any) -> None:
        self.given = given
        self.starts: dict[CallRef, float] = {}
        self.ends: dict[CallRef, float] = {}
        self.most_live = 0
        schedule = Schedule(given, **how)
        waiting = schedule.start(0.0)
        heapq.heapify(waiting)
        flying: list[tuple[float, CallRef]] = []
        while waiting or flying:
            if not flying or (waiting and waiting[0].at_s <= flying[0][0]):
                at_s, ref = heapq.heappop(waiting)
                assert ref not in self.starts
                self.starts[ref] = at_s
                heapq.heappush(flying, (at_s + lasts[len(self.starts) % len(lasts)], ref))
            else:
                now_s, ref = heapq.heappop(flying)
                self.ends[ref] = now_s
                for due in schedule.finished(ref, now_s):
                    assert due.at_s >= now_s
                    heapq.heappush(waiting, due)
            self.most_live = max(self.most_live, len({ref.trace for _, ref in (*waiting, *flying)}))
        self.remaining = schedule.remaining


def waits_of(trace: Trace, ref: CallRef, *, joins: bool) -> set[CallRef]:
    """Return the calls whose end a call waits for, by the table in `Schedule`, naively."""
    at = {session.label: index for index, session in enumerate(trace.sessions)}

    def last(index: int) -> set[CallRef]:
        turns = len(trace.sessions[index].turns)
        if turns:
            return {CallRef(ref.trace, index, turns - 1)}
        label = trace.sessions[index].label
        children = [n for n, one in enumerate(trace.sessions) if one.parent == label]
        return set().union(*map(last, children))

    def spawn(index: int) -> set[CallRef]:
        session = trace.sessions[index]
        if session.parent is None:
            return set()
        if session.spawned_after is None:
            return spawn(at[session.parent])
        return {CallRef(ref.trace, at[session.parent], session.spawned_after)}

    waits = {ref._replace(turn=ref.turn - 1)} if ref.turn else spawn(ref.session)
    label = trace.sessions[ref.session].label
    for index, child in enumerate(trace.sessions):
        if joins and child.parent == label and child.joined_before == ref.turn:
            waits |= last(index)
    return waits


@given(st.lists(traces(), max_size=4), st.sampled_from(MODES), st.sampled_from([None, 1, 2]))
def test_every_call_comes_up_once_in_every_mode(
    given: list[Trace], mode: Mode, live: int | None
) -> None:
    played = Played(given, (1.0, 30.0, 0.0), mode=mode, live_sessions=live)
    assert len(played.ends) == sum(trace.requests for trace in given)
    assert played.remaining == 0


@given(traces(), st.sampled_from(MODES), st.lists(st.floats(0, 50), min_size=1, max_size=5))
def test_no_call_comes_up_before_what_it_waits_for(
    trace: Trace, mode: Mode, lasts: list[float]
) -> None:
    played = Played([trace], lasts, mode=mode)
    for ref, start_s in played.starts.items():
        for before in waits_of(trace, ref, joins=mode != "fixed"):
            assert played.ends[before] <= start_s


@given(traces(), st.floats(0, 3), st.sampled_from([None, 0.0, 7.0]))
def test_a_call_is_due_its_recorded_wait_after_the_last_of_what_it_waits_for(
    trace: Trace, scale: float, cap_s: float | None
) -> None:
    played = Played([trace], (2.0, 11.0), time_scale=scale, gap_cap_s=cap_s)
    began_s = min((one.turns[0].start_s for one in trace.sessions if one.turns), default=0.0)
    for ref, start_s in played.starts.items():
        waits = waits_of(trace, ref, joins=True)
        recorded = [trace.sessions[one.session].turns[one.turn].end_s for one in waits]
        turns = trace.sessions[ref.session].turns
        gap_s = max(0.0, turns[ref.turn].start_s - max(recorded, default=began_s))
        if cap_s is not None:
            gap_s = min(gap_s, cap_s)
        free_s = max((played.ends[one] for one in waits), default=0.0)
        assert start_s == pytest.approx(free_s + gap_s * scale)


@given(traces(), st.floats(0, 3))
def test_the_fixed_mode_keeps_recorded_times_where_the_calls_before_allow_it(
    trace: Trace, scale: float
) -> None:
    played = Played([trace], (2.0, 300.0), mode="fixed", time_scale=scale)
    began_s = min((one.turns[0].start_s for one in trace.sessions if one.turns), default=0.0)
    for ref, start_s in played.starts.items():
        recorded_s = trace.sessions[ref.session].turns[ref.turn].start_s
        waits = waits_of(trace, ref, joins=False)
        free_s = max((played.ends[one] for one in waits), default=0.0)
        assert start_s == pytest.approx(max(free_s, (recorded_s - began_s) * scale))


@given(st.lists(traces(), max_size=5), st.integers(1, 3))
def test_no_more_traces_are_live_than_asked_for(given: list[Trace], live: int) -> None:
    assert Played(given, mode="asap", live_sessions=live).most_live <= live


@given(st.lists(traces(), max_size=4))
def test_equal_inputs_give_the_same_order(given: list[Trace]) -> None:
    first, second = (Played(given, (1.0, 5.0)) for _ in range(2))
    assert list(first.starts.items()) == list(second.starts.items())


def test_calls_at_one_time_are_ordered_by_trace_session_and_turn() -> None:
    schedule = Schedule([FORKS, FORKS], mode="asap")
    assert schedule.start(0.0) == [Due(0.0, CallRef(0, 0, 0)), Due(0.0, CallRef(1, 0, 0))]
    assert schedule.finished(CallRef(0, 0, 0), 4.0) == [
        Due(4.0, CallRef(0, 1, 0)),
        Due(4.0, CallRef(0, 2, 0)),
    ]


def test_the_next_trace_begins_when_a_live_one_has_ended() -> None:
    one = Trace("t", 8, (Session("s", "s", (turn(1, at=5), turn(1, at=8))),))
    schedule = Schedule([one, one], live_sessions=1)
    assert schedule.start(0.0) == [Due(0.0, CallRef(0, 0, 0))]
    assert schedule.finished(CallRef(0, 0, 0), 3.0) == [Due(5.0, CallRef(0, 0, 1))]
    assert schedule.finished(CallRef(0, 0, 1), 9.0) == [Due(9.0, CallRef(1, 0, 0))]


def test_a_call_that_is_not_out_cannot_end() -> None:
    schedule = Schedule([FORKS])
    schedule.start(0.0)
    schedule.finished(CallRef(0, 0, 0), 1.0)
    for ref in (CallRef(0, 0, 0), CallRef(0, 0, 1), CallRef(0, 9, 0), CallRef(7, 0, 0)):
        with pytest.raises(ValueError, match="not a call that is due"):
            schedule.finished(ref, 2.0)
    with pytest.raises(ValueError, match="has been started"):
        schedule.start(2.0)


@pytest.mark.parametrize("wrong", [{"time_scale": -1.0}, {"gap_cap_s": -1.0}, {"live_sessions": 0}])
def test_options_outside_of_their_limits_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Schedule([FORKS], **wrong)


def test_the_cost_of_a_call_does_not_grow_with_the_calls() -> None:
    turns = tuple(turn(1, at=2.0 * n) for n in range(400))
    given = [Trace(f"t{n}", 8, (Session("s", "s", turns),)) for n in range(75)]
    began_s = time.process_time()
    Played([*given[:-1], replace(given[-1], id="last")])
    # 30,000 calls; a machine that is busy with other tests gets four times the bound.
    assert time.process_time() - began_s < 2.0
