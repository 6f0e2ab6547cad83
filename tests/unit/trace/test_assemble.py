from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.trace import (
    CallEvent,
    Session,
    Trace,
    Turn,
    digest,
    events_of,
    read,
    traces_of,
    uncounted,
    uncounted_note,
    write,
)
from tests.unit.trace.events import call, file_of, read_all


def one(path: Path, *rows: dict[str, Any]) -> Trace:
    (trace,), problems = read_all(file_of(path, *rows))
    assert problems == []
    return trace


def test_a_recorded_run_begins_at_0_and_keeps_its_distances(tmp_path: Path) -> None:
    tool = {"name": "Bash", "start_s": 1700000002.25, "end_s": 1700000004.0}
    trace = one(
        tmp_path,
        call("a", 0, 1700000001.0, 1700000002.25, first_token_s=1700000001.5),
        call("a", 1, 1700000004.0, 1700000005.0, tools=[tool]),
    )
    first, second = trace.sessions[0].turns
    assert (first.start_s, first.first_token_s, first.end_s) == (0.0, 0.5, 1.25)
    assert (second.start_s, second.tools[0].start_s, second.tools[0].end_s) == (3.0, 1.25, 3.0)


def test_a_run_of_another_format_keeps_its_times(tmp_path: Path) -> None:
    about = {"kind": "run", "v": 1, "run_id": "r", "source": "weka"}
    assert one(tmp_path, about, call("a", 0, 7.25, 8.0)).sessions[0].turns[0].start_s == 7.25


def test_of_several_attempts_the_last_that_was_answered_counts(tmp_path: Path) -> None:
    trace = one(
        tmp_path,
        call("a", 0, 0.0, 1.0, attempt=0, error="500"),
        call("a", 0, 2.0, 3.0, attempt=1),
        {**call("a", 0, 4.0, 5.0, attempt=2), "end_s": None},
    )
    (turn,) = trace.sessions[0].turns
    assert (turn.attempt, turn.start_s) == (1, 2.0)


def test_a_call_in_no_session_is_a_session_of_its_own(tmp_path: Path) -> None:
    trace = one(tmp_path, call(None, 0, 0.0, 1.0), call(None, 0, 0.0, 1.0))
    assert [len(session.turns) for session in trace.sessions] == [1, 1]


def test_a_child_forks_and_joins_where_its_parents_calls_say(tmp_path: Path) -> None:
    fork = {"session_id": "a", "turn": 0, "inherits": True}
    trace = one(
        tmp_path,
        call("b", 0, 5.0, 6.0, parent_session_id="a", fork=fork, agent_name="Explore"),
        call("a", 0, 0.0, 1.0),
        call("a", 1, 2.0, 3.0),
        call("a", 2, 7.0, 8.0, joins=["b"]),
    )
    assert [session.label for session in trace.sessions] == ["a", "b"]
    child = trace.sessions[1]
    assert (child.agent, child.fork) == ("Explore", "inherit")
    assert (child.spawned_after, child.joined_before) == (0, 2)


@pytest.mark.parametrize(
    ("next_call_s", "joined"), [(6.0, 1), (6.5, 1), (5.5, None)], ids=["at", "after", "within"]
)
def test_a_parent_that_made_no_call_until_the_child_had_ended_waited(
    tmp_path: Path, next_call_s: float, joined: int | None
) -> None:
    trace = one(
        tmp_path,
        call("a", 0, 0.0, 1.0),
        call("b", 0, 2.0, 3.0, parent_session_id="a"),
        call("b", 1, 5.0, 6.0),
        call("a", 1, next_call_s, 9.0),
        call("a", 2, 20.0, 21.0),
    )
    assert (trace.sessions[1].spawned_after, trace.sessions[1].joined_before) == (0, joined)


def test_text_is_cut_in_blocks_of_64_tokens_as_the_server_counted_them(tmp_path: Path) -> None:
    text = {"block_size": None, "block_bytes": 256}
    trace = one(
        tmp_path,
        call("a", 0, 0.0, 1.0, **text, input_bytes=1000, input_tokens=290, blocks=[[0, 3]]),
        call("a", 1, 2.0, 3.0, **text, input_bytes=2000, input_tokens=610, blocks=[[0, 7]]),
        call("a", 2, 4.0, 5.0, **text, input_bytes=2100, input_tokens=None, blocks=[[0, 8]]),
        call("b", 0, 6.0, 7.0, **text, input_bytes=1100, input_tokens=330, blocks=[[0, 4]]),
    )
    assert trace.block_size == 64
    turns = [turn for session in trace.sessions for turn in session.turns]
    ratio = (290 + 610 + 330) / (1000 + 2000 + 1100)
    assert [turn.input_tokens for turn in turns] == [290, 610, 630, 330]
    assert [turn.block_count for turn in turns] == [
        int(count * 256 * ratio) // 64 for count in (3, 7, 8, 4)
    ]
    longest = turns[2].block_ids
    assert all(turn.block_ids == longest[: turn.block_count] for turn in turns)


def test_a_prompt_is_as_long_as_the_server_counted_whatever_its_bytes_say(tmp_path: Path) -> None:
    text = {"block_size": None, "block_bytes": 256, "input_bytes": 2560, "blocks": [[0, 10]]}
    trace = one(
        tmp_path,
        call("a", 0, 0.0, 1.0, **text) | {"input_tokens": 500},
        call("a", 1, 2.0, 3.0, **text) | {"input_tokens": 900},
    )
    turns = trace.sessions[0].turns
    assert [turn.input_tokens for turn in turns] == [500, 900]
    assert [turn.block_count for turn in turns] == [500 // 64, 700 // 64]


def test_runs_of_any_tokenizer_have_one_block_size_and_it_is_one_of_servers(
    tmp_path: Path,
) -> None:
    text = {"block_size": None, "block_bytes": 256, "input_bytes": 1000, "blocks": [[0, 3]]}
    rows = [
        {**call("a", 0, 0.0, 1.0, **text, input_tokens=tokens), "run_id": str(tokens)}
        for tokens in (100, 250, 333, 973)
    ]
    traces, problems = read_all(file_of(tmp_path, *rows))
    assert problems == []
    assert {trace.block_size for trace in traces} == {64}
    assert [trace.sessions[0].turns[0].block_count for trace in traces] == [1, 3, 3, 11]


def test_events_alone_give_traces_too() -> None:
    event = CallEvent(run_id="r", session_id="s", start_s=5.0, end_s=6.0)
    (trace,) = traces_of([event])
    guessed = trace.sessions[0].turns[0].guessed
    assert trace.sessions[0].turns == (Turn((), 0, 0, 0.0, 1.0, guessed=guessed),)


def test_lengths_that_nobody_counted_are_guessed_as_the_counted_ones_are_and_told_apart(
    tmp_path: Path,
) -> None:
    size = {"block_size": None, "blocks": []}
    rows = [
        call("a", 0, 0.0, 1.0, **size, input_bytes=300, output_bytes=60)
        | {"input_tokens": 100, "output_tokens": 30},
        call("a", 1, 2.0, 3.0, **size, input_bytes=600, output_bytes=100)
        | {"input_tokens": None, "output_tokens": None},
        call("a", 2, 4.0, 5.0, **size, input_bytes=600)
        | {"input_tokens": None, "output_tokens": None},
    ]
    trace = one(tmp_path, *rows)
    turns = trace.sessions[0].turns
    assert [(turn.input_tokens, turn.output_tokens) for turn in turns] == [
        (100, 30),
        (200, 50),
        (200, 0),
    ]
    both = ("input_tokens", "output_tokens")
    assert [turn.guessed for turn in turns] == [(), both, both]
    assert uncounted(trace) == 2
    (note,) = filter(None, [uncounted_note([trace])])
    assert note.startswith("2 of 3 calls have no token counts")
    # A guess that was written is still one when it is read again.
    write(tmp_path / "again.jsonl", [trace])
    (again,) = read(tmp_path / "again.jsonl")
    assert [turn.guessed for turn in again.sessions[0].turns] == [(), both, both]
    assert uncounted_note([Trace("r", 64, ())]) is None


def test_a_run_that_says_how_many_calls_it_has_is_let_go_when_they_are_there(
    tmp_path: Path,
) -> None:
    about = {"kind": "run", "v": 1, "run_id": "r", "calls": 1}
    other = {**call("a", 0, 0.0, 1.0), "run_id": "s"}
    file = file_of(tmp_path, other, about, call("a", 0, 0.0, 1.0), other)
    assert [trace.id for trace in read_all(file)[0]] == ["r", "s"]


@st.composite
def forests(draw: st.DrawFn) -> Trace:
    sessions: list[Session] = []
    for label in "abcd"[: draw(st.integers(1, 4))]:
        parent = draw(st.sampled_from([None, *sessions]))
        spawned = joined = None
        if parent is not None and parent.turns:
            spawned = draw(st.sampled_from([None, *range(len(parent.turns))]))
            later = range(0 if spawned is None else spawned + 1, len(parent.turns))
            joined = draw(st.sampled_from([None, *later]))
        starts = draw(st.lists(st.floats(0, 1e6), max_size=3).map(sorted))
        sessions.append(
            Session(
                label,
                draw(st.sampled_from(["", "main", "Explore"])),
                tuple(Turn(((7, 2),), 130, 3, at, at + draw(st.floats(0, 9))) for at in starts),
                parent.label if parent else None,
                spawned,
                joined,
                draw(st.sampled_from(["fresh", "inherit"])) if parent else "fresh",
            )
        )
    return Trace("r", 64, tuple(sessions), source="weka")


@given(forests(), st.randoms(use_true_random=False))
def test_a_trace_comes_back_from_its_events_in_any_order(
    trace: Trace, order: random.Random
) -> None:
    events = list(events_of(trace))
    order.shuffle(events)
    assert list(traces_of(events)) == [trace]


def test_a_file_is_read_as_it_was_written_compressed_or_not(tmp_path: Path) -> None:
    traces = [
        Trace(f"r{n}", 64, (Session("a", "m", (Turn(((n, 2),), 130, 3, 0.5, 1.0),)),), source="x")
        for n in range(3)
    ]
    for name in ("a.jsonl", "a.jsonl.gz"):
        write(tmp_path / name, traces)
        assert list(read(tmp_path / name)) == traces


def test_a_digest_changes_with_all_that_a_replay_depends_on_and_with_nothing_else() -> None:
    turn = Turn(((1, 2),), 130, 3, 0.5, 1.0)
    child = Session("b", "e", (turn,), "a", 0, 1, "fresh")
    trace = Trace("r", 64, (Session("a", "m", (turn, turn)), child))
    same = Trace(
        "other",
        64,
        (
            Session("a", "m", (turn, turn), extra={"x": 1}),
            Session(
                "b", "e", (Turn(((1, 1), (2, 1)), 130, 3, 0.5, 1.0, model_name="m"),), "a", 0, 1
            ),
        ),
        source="weka",
    )
    assert digest(trace) == digest(same)
    others = [
        Trace("r", 32, trace.sessions),
        Trace("r", 64, trace.sessions, "global"),
        Trace("r", 64, trace.sessions[:1]),
        *(
            Trace("r", 64, (trace.sessions[0], changed))
            for changed in (
                Session("c", "e", (turn,), "a", 0, 1),
                Session("b", "f", (turn,), "a", 0, 1),
                Session("b", "e", (turn,), "a", None, 1),
                Session("b", "e", (turn,), "a", 0, None),
                Session("b", "e", (turn,), "a", 0, 1, "inherit"),
                Session("b", "e", (Turn(((2, 2),), 130, 3, 0.5, 1.0),), "a", 0, 1),
                Session("b", "e", (Turn(((1, 2),), 131, 3, 0.5, 1.0),), "a", 0, 1),
                Session("b", "e", (Turn(((1, 2),), 130, 4, 0.5, 1.0),), "a", 0, 1),
                Session("b", "e", (Turn(((1, 2),), 130, 3, 0.4, 1.0),), "a", 0, 1),
                Session("b", "e", (Turn(((1, 2),), 130, 3, 0.5, 1.1),), "a", 0, 1),
            )
        ),
    ]
    assert len({digest(one) for one in [trace, *others]}) == len(others) + 1
