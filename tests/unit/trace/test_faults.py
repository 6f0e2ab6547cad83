from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tenuto.trace import Problem, TraceError, read, read_events
from tenuto.trace.lines import LINE_LIMIT
from tests.unit.trace.events import call, file_of, read_all

GOOD = [call("a", turn, turn * 10.0, turn * 10.0 + 1) for turn in range(3)]


def turns_in(file: Path) -> int:
    return sum(trace.requests for trace in read_all(file)[0])


@pytest.mark.parametrize("kept", [1, 40, -2])
def test_a_torn_last_line_is_dropped_with_a_note_and_is_no_error(tmp_path: Path, kept: int) -> None:
    file = file_of(tmp_path, *GOOD, json.dumps(call("a", 3, 40.0, 41.0)).encode()[:kept])
    (trace,), (note,) = read_all(file)
    assert trace.requests == 3
    assert (note.line, note.path, note.is_note) == (4, "run.jsonl", True)
    assert list(read(file)) == [trace]


def test_a_last_line_without_an_end_that_is_whole_counts(tmp_path: Path) -> None:
    assert turns_in(file_of(tmp_path, *GOOD[:2], json.dumps(GOOD[2]).encode())) == 3


def test_a_compressed_file_that_ends_early_is_read_up_to_there(tmp_path: Path) -> None:
    rows = [
        call("a", turn, turn * 10.0, turn * 10.0 + 1, extra={"x": hash(turn)})
        for turn in range(900)
    ]
    text = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    packed = gzip.compress(text)
    (tmp_path / "run.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    (trace,), (torn, cut) = read_all(tmp_path / "run.jsonl.gz")
    assert 100 < trace.requests < 900
    assert (torn.line, torn.is_note) == (trace.requests + 1, True)
    assert cut == Problem(trace.requests + 1, cut.what, "run.jsonl.gz")
    assert "cannot be read further" in cut.what


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (b"{not json}\n", "Invalid JSON"),
        ({"kind": "call", "v": 1, "run_id": "r"}, "start_s: Field required"),
        ({**GOOD[0], "v": 2}, "written in version 2 of the format, this reads 1"),
        ({**GOOD[0], "kind": "other"}, "not an event"),
        ({**GOOD[0], "surprise": 1}, "surprise: Extra inputs are not permitted"),
        ({**GOOD[0], "input_tokens": -5}, "input_tokens: "),
        (b"\xff\xfe\n", "not an event"),
        (b'{"kind":"call","start_s":NaN}\n', "not an event"),
        (b"[1]\n", "not an event"),
    ],
)
def test_a_line_that_is_no_event_is_named_and_the_others_are_read(
    tmp_path: Path, bad: dict[str, Any] | bytes, what: str
) -> None:
    file = file_of(tmp_path, GOOD[0], bad, *GOOD[1:])
    (trace,), (problem,) = read_all(file)
    assert trace.requests == 3
    assert (problem.path, problem.line, problem.is_note) == ("run.jsonl", 2, False)
    assert what in problem.what


def test_a_huge_line_is_skipped_without_being_held(tmp_path: Path) -> None:
    file = file_of(tmp_path, GOOD[0])
    with file.open("ab") as out:
        out.writelines([b"x" * (1 << 20)] * (LINE_LIMIT // (1 << 20) + 40))
        out.write(b"\n" + b"".join(json.dumps(row).encode() + b"\n" for row in GOOD[1:]))
    tracemalloc.start()
    (trace,), (problem,) = read_all(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (trace.requests, problem.line) == (3, 2)
    assert "longer than 64 MiB" in problem.what
    assert peak < 3 * LINE_LIMIT


def test_a_line_that_stands_twice_counts_once(tmp_path: Path) -> None:
    (trace,), (problem,) = read_all(file_of(tmp_path, *GOOD, GOOD[1]))
    assert (trace.requests, problem.line) == (3, 4)
    assert "stands in line 2 too" in problem.what


def test_a_whole_file_twice_is_one_trace(tmp_path: Path) -> None:
    about = {"kind": "run", "v": 1, "run_id": "r", "calls": 3}
    traces, problems = read_all(file_of(tmp_path, about, *GOOD, about, *GOOD))
    assert [trace.requests for trace in traces] == [3]
    assert [problem.line for problem in problems] == [5, 6, 7, 8]


def test_lines_in_any_order_are_the_same_trace(tmp_path: Path) -> None:
    right = read_all(file_of(tmp_path, *GOOD))
    assert read_all(file_of(tmp_path, *reversed(GOOD))) == right


def test_calls_that_a_run_says_it_has_and_has_not_are_told(tmp_path: Path) -> None:
    about = {"kind": "run", "v": 1, "run_id": "r", "calls": 5}
    (trace,), (problem,) = read_all(file_of(tmp_path, about, *GOOD))
    assert (trace.requests, problem.line) == (3, 1)
    assert "should have 5 calls, has 3" in problem.what


def test_times_that_cannot_be_are_put_right_and_told(tmp_path: Path) -> None:
    file = file_of(
        tmp_path,
        call("a", 0, 100.0, 101.0),
        call("a", 1, 105.0, 104.0),
        call("a", 2, -3.0, 108.0),
        call("a", 3, 110.0, 111.0, first_token_s=115.0),
    )
    (trace,), problems = read_all(file)
    spans = [(turn.start_s, turn.end_s) for turn in trace.sessions[0].turns]
    assert spans == [(0.0, 1.0), (5.0, 5.0), (0.0, 8.0), (10.0, 11.0)]
    assert [problem.line for problem in problems] == [2, 3, 4]


def test_turns_that_are_missing_are_told_and_forks_find_their_place(tmp_path: Path) -> None:
    file = file_of(
        tmp_path,
        call("a", 2, 0.0, 1.0),
        call("a", 5, 10.0, 11.0, joins=["b"]),
        call("b", 0, 2.0, 3.0, fork={"session_id": "a", "turn": 3}),
    )
    (trace,), problems = read_all(file)
    assert (trace.sessions[1].spawned_after, trace.sessions[1].joined_before) == (0, 1)
    assert [problem.line for problem in problems] == [1, 2, 3]


@pytest.mark.parametrize("ring", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_a_cycle_of_parents_is_cut_at_one_session(tmp_path: Path, ring: list[str]) -> None:
    rows = [
        call(label, 0, at, at + 1.0, parent_session_id=ring[(at + 1) % len(ring)])
        for at, label in enumerate(ring)
    ]
    (trace,), (problem,) = read_all(file_of(tmp_path, *rows))
    assert sorted(session.label for session in trace.sessions) == ring
    assert sum(session.parent is None for session in trace.sessions) == 1
    assert "its own ancestor; taken as a root" in problem.what
    assert problem.line in range(1, len(ring) + 1)


def test_a_parent_that_is_not_there_leaves_a_root(tmp_path: Path) -> None:
    (trace,), (problem,) = read_all(
        file_of(tmp_path, GOOD[0], call("b", 0, 5.0, 6.0, parent_session_id="lost"))
    )
    assert [session.parent for session in trace.sessions] == [None, None]
    assert (problem.line, "no session lost" in problem.what) == (2, True)


def test_a_wait_before_the_spawn_is_told(tmp_path: Path) -> None:
    child = call("b", 0, 15.0, 16.0, fork={"session_id": "a", "turn": 1})
    (trace,), (problem,) = read_all(
        file_of(tmp_path, {**GOOD[0], "joins": ["b"]}, GOOD[1], child, GOOD[2])
    )
    assert (trace.sessions[1].spawned_after, trace.sessions[1].joined_before) == (1, None)
    assert problem.line == 1


def test_blocks_of_another_size_are_left_out_and_told(tmp_path: Path) -> None:
    (trace,), (problem,) = read_all(file_of(tmp_path, *GOOD[:2], {**GOOD[2], "block_size": 16}))
    assert [turn.block_count for turn in trace.sessions[0].turns] == [2, 2, 0]
    assert problem.line == 3


def test_without_a_taker_all_that_is_good_comes_before_the_error(tmp_path: Path) -> None:
    file = file_of(tmp_path, GOOD[0], *[b"x\n"] * 30, *GOOD[1:])
    found = read(file)
    assert next(found).requests == 3
    with pytest.raises(TraceError, match=r"run\.jsonl:2: not an event") as raised:
        next(found)
    assert len(raised.value.problems) == 30
    assert str(raised.value).count("\n") == 20
    assert str(raised.value).endswith("and 10 more")
    events = read_events(file)
    assert [next(events).run_id for _ in GOOD] == ["r"] * 3
    with pytest.raises(TraceError):
        next(events)


def test_a_file_in_no_known_format_is_refused_with_those_that_are(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("{}\n")
    with pytest.raises(TraceError, match=r"x\.jsonl:1: in none of the formats tenuto, weka"):
        read(tmp_path / "x.jsonl")
    with pytest.raises(TraceError, match="no format 'csv'; formats: tenuto"):
        read(tmp_path / "x.jsonl", format="csv")


def test_an_empty_file_is_said_to_be_empty(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").touch()
    with pytest.raises(
        TraceError, match=r"x\.jsonl: is empty: no call was recorded .*tenuto\.wrap"
    ):
        read(tmp_path / "x.jsonl")
