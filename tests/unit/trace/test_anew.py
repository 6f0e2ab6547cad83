"""A session whose program began anew goes on: its turn numbers begin again, its calls do not."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tenuto.trace import CallEvent, Trace, traces_of
from tests.unit.trace.events import call, file_of, read_all


def starts_in(trace: Trace, place: int = 0) -> list[float]:
    return [turn.start_s for turn in trace.sessions[place].turns]


def read_one(path: Path, *rows: dict[str, Any]) -> tuple[Trace, list[str]]:
    (trace,), problems = read_all(file_of(path, *rows))
    return trace, [str(problem) for problem in problems]


def test_a_program_that_is_started_again_goes_on_in_its_session(tmp_path: Path) -> None:
    first = [call("a", turn, turn * 10.0, turn * 10.0 + 5) for turn in range(3)]
    again = [call("a", turn, 100 + turn * 10.0, 105 + turn * 10.0) for turn in range(2)]
    trace, problems = read_one(tmp_path, *first, *again)
    assert problems == []
    assert starts_in(trace) == [0.0, 10.0, 20.0, 100.0, 110.0]


def test_an_equal_line_is_the_same_call_and_any_other_is_a_further_one(tmp_path: Path) -> None:
    one, other = call("a", 0, 0.0, 5.0), call("a", 0, 0.0, 6.0)
    trace, problems = read_one(tmp_path, one, other, one, other)
    assert [turn.end_s for turn in trace.sessions[0].turns] == [5.0, 6.0]
    assert [text.partition(": ")[2] for text in problems] == [
        f"turn 0, attempt 0 of session a stands in line {line} too; left out" for line in (1, 2)
    ]


def test_tries_stay_with_the_turn_that_they_repeat(tmp_path: Path) -> None:
    trace, problems = read_one(
        tmp_path,
        call("a", 0, 0.0, 1.0, error="500"),
        call("a", 0, 2.0, 3.0, attempt=1),
        # Killed in its second turn, and started again.
        {**call("a", 1, 4.0, 5.0, error="Incomplete"), "end_s": None},
        call("a", 0, 20.0, 21.0, error="500"),
        call("a", 0, 22.0, 23.0, attempt=1, error="500"),
        call("a", 0, 24.0, 25.0, attempt=2),
    )
    assert problems == []
    turns = trace.sessions[0].turns
    assert [(turn.start_s, turn.attempt) for turn in turns] == [(2.0, 1), (4.0, 0), (24.0, 2)]


def test_a_turn_that_is_asked_again_after_its_answer_is_a_further_one(tmp_path: Path) -> None:
    trace, problems = read_one(
        tmp_path,
        call("a", 0, 0.0, 1.0),
        call("a", 1, 2.0, 3.0),
        call("a", 0, 10.0, 11.0, attempt=1),
        call("a", 1, 12.0, 13.0, attempt=1, error="500"),
        call("a", 1, 14.0, 15.0, attempt=2),
        # Two of a turn at once, both answered, are two as well.
        call("a", 2, 20.0, 22.0),
        call("a", 2, 21.0, 23.0, attempt=1),
    )
    assert problems == []
    assert starts_in(trace) == [0.0, 2.0, 10.0, 14.0, 20.0, 21.0]


def test_two_programs_at_once_in_one_session_lose_no_call(tmp_path: Path) -> None:
    trace, problems = read_one(
        tmp_path,
        call("a", 0, 0.0, 1.0, error="500"),
        call("a", 0, 2.0, 3.0),
        # The answered one is not what this tries again.
        call("a", 0, 10.0, 11.0, attempt=1),
        call("a", 1, 12.0, 13.0),
        call("a", 1, 12.5, 14.0),
    )
    assert problems == []
    assert starts_in(trace) == [10.0, 2.0, 12.0, 12.5]


def test_a_child_of_a_session_that_began_anew_forks_from_the_turn_before_it(
    tmp_path: Path,
) -> None:
    def forked(label: str, start_s: float) -> dict[str, Any]:
        fork = {"session_id": "a", "turn": 0}
        return call(label, 0, start_s, start_s + 1, parent_session_id="a", fork=fork)

    trace, problems = read_one(
        tmp_path,
        call("a", 0, 0.0, 1.0),
        forked("b", 2.0),
        call("a", 1, 4.0, 5.0),
        call("a", 0, 100.0, 101.0),
        forked("c", 102.0),
        call("a", 1, 104.0, 105.0),
    )
    assert problems == []
    places = {one.label: (one.spawned_after, one.joined_before) for one in trace.sessions}
    assert places == {"a": (None, None), "b": (0, 1), "c": (2, 3)}


def test_what_is_left_of_a_first_program_stands_before_the_second(tmp_path: Path) -> None:
    left = [call("a", turn, turn * 10.0, turn * 10.0 + 5) for turn in (5, 6)]
    again = [call("a", turn, 100 + turn * 10.0, 105 + turn * 10.0) for turn in range(2)]
    trace, problems = read_one(tmp_path, *left, *again)
    assert starts_in(trace) == [0.0, 10.0, 50.0, 60.0]
    assert len(problems) == 1
    assert "goes from turn 1 to turn 5; what is between is missing" in problems[0]


def test_a_session_that_is_described_and_has_no_call_is_read(tmp_path: Path) -> None:
    about = {"kind": "run", "v": 1, "run_id": "r", "sessions": [{"session_id": "a"}]}
    trace, problems = read_one(tmp_path, about, call("b", 0, 0.0, 1.0))
    assert problems == []
    assert [len(session.turns) for session in trace.sessions] == [0, 1]


def test_times_of_another_format_do_not_change_the_order_of_its_turns(tmp_path: Path) -> None:
    about = {"kind": "run", "v": 1, "run_id": "r", "source": "weka"}
    trace, _ = read_one(tmp_path, about, call("a", 0, 50.0, 51.0), call("a", 1, 10.0, 11.0))
    assert starts_in(trace) == [50.0, 10.0]


lives = st.lists(st.integers(1, 5), min_size=1, max_size=5)


@given(lives, st.randoms(use_true_random=False))
def test_lives_of_a_session_in_any_order_of_lines_are_its_calls_in_order_of_time(
    lengths: list[int], order: random.Random
) -> None:
    places = [turn for length in lengths for turn in range(length)]
    events = [
        CallEvent(run_id="r", session_id="a", turn=turn, start_s=float(at), end_s=at + 0.5)
        for at, turn in enumerate(places)
    ]
    order.shuffle(events)
    (trace,) = traces_of(events)
    assert starts_in(trace) == [float(at) for at in range(len(places))]


def test_answered_tries_that_overlap_are_turns_of_their_own(tmp_path: Path) -> None:
    votes = [call("a", 0, 0.1 * n, 5.0, attempt=n) for n in range(10)]
    trace, problems = read_one(tmp_path, *votes)
    assert (len(trace.sessions[0].turns), problems) == (10, [])
