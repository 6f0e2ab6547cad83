"""What was put right is told, with its line; the values are what the words say."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tenuto.trace import Session, Trace, read, stats, write
from tests.unit.trace.events import call, file_of, read_all
from tests.unit.trace.test_hostile_rows import message, request, span, turn, weka


def starts_of(session: Session) -> list[float]:
    return [one.start_s for one in session.turns]


def told_by(path: Path, *rows: Any) -> tuple[list[Trace], list[tuple[int | None, str]]]:
    file = path / "r.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    traces, problems = read_all(file)
    return traces, [(problem.line, problem.what) for problem in problems]


@pytest.mark.parametrize(
    ("requests", "starts", "what"),
    [
        ([request(-50), request(9)], [0.0, 9.0], "1 requests of b start before time 0"),
        ([request(5, api_time=-9), request(9, ttft=-3)], [5.0, 9.0], "2 requests of b have a neg"),
        ([request(9, 2), request(5), request(7)], [5.0, 7.0, 9.0], "1 requests of b stand behind"),
        ([{**request(5, 10), "in": 130}], [5.0], "1 requests of b have more blocks than tokens"),
    ],
)
def test_what_is_put_right_in_a_weka_session_is_told(
    tmp_path: Path, requests: list[Any], starts: list[float], what: str
) -> None:
    (_, trace), (told,) = told_by(tmp_path, weka("a", request(0)), weka("b", *requests))
    assert starts_of(trace.sessions[0]) == starts
    assert (told[0], what in told[1]) == (2, True)
    assert all(one.block_count * 64 <= one.input_tokens for one in trace.sessions[0].turns)
    assert 0 <= stats([trace]).all.token_rate <= 1


def test_a_weka_session_twice_counts_once_and_another_of_its_name_stays(tmp_path: Path) -> None:
    row, other = weka("a", request(0)), weka("a", request(5, 2))
    traces, told = told_by(tmp_path, row, row, other)
    assert [trace.id for trace in traces] == ["a", "a#2"]
    assert [line for line, _ in told] == [2, 3]
    assert "stands in line 1 too; left out" in told[0][1]
    write(tmp_path / "own.jsonl", traces)
    assert list(read(tmp_path / "own.jsonl")) == traces
    write(tmp_path / "back.jsonl", read(tmp_path / "own.jsonl"), format="weka")
    back = (tmp_path / "back.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in back] == ["a", "a"]


def test_mooncake_rows_out_of_order_are_put_in_order_and_told(tmp_path: Path) -> None:
    (trace,), told = told_by(tmp_path, turn("s", 5000), turn("s", 1000), turn("s", 3000))
    assert starts_of(trace.sessions[0]) == [1.0, 3.0, 5.0]
    assert [line for line, _ in told] == [2]
    assert "starts before the session's request in line 1; put in order" in told[0][1]


def test_mooncake_rows_of_no_one_block_size_are_told(tmp_path: Path) -> None:
    rows = [turn("s", at, input_length=n, hash_ids=[1, 2]) for at, n in enumerate([2000, 10])]
    assert "for blocks of no one size" in told_by(tmp_path, *rows)[1][0][1]


def test_a_span_twice_counts_once(tmp_path: Path) -> None:
    other = {**span(0), "trace_id": "u"}
    (trace,), told = told_by(tmp_path, span(0), span(1), span(0), other)
    assert trace.requests == 3
    assert told == [(3, "span s0 stands in line 1 too; left out")]


LOG = [
    message("user", "1", None, "a" * 300),
    message("assistant", "2", "1", "b" * 300),
    message("user", "3", "2", "c" * 300),
    message("assistant", "4", "3", "d"),
]


@pytest.mark.parametrize(
    ("log", "calls", "line", "what"),
    [
        ([LOG[0], LOG[2], LOG[3]], 1, 2, "its parent 2 is not there; taken as a first line"),
        ([*LOG, LOG[1]], 2, 5, "2 stands in line 2 too; left out"),
        ([*LOG, message("assistant", "x", "x", "")], 3, 5, "line x is above itself; cut there"),
        (LOG[::-1], 2, 1, "stands before its parent; the session's lines are put in the order"),
        (LOG[2:], 1, None, ""),
    ],
)
def test_what_is_wrong_with_the_chain_of_a_claude_code_log_is_told(
    tmp_path: Path, log: list[Any], calls: int, line: int | None, what: str
) -> None:
    rows = [{**row, "timestamp": f"2026-01-01T00:00:0{'1234x'.index(row['uuid'])}Z"} for row in log]
    (trace,), told = told_by(tmp_path, *rows)
    assert trace.requests == calls
    assert starts_of(trace.sessions[0]) == sorted(starts_of(trace.sessions[0]))
    assert [number for number, _ in told] == ([] if line is None else [line])
    assert all(what in said for _, said in told)


def test_an_answer_without_a_time_is_told_and_stretches_no_run(tmp_path: Path) -> None:
    log = [{**row, "timestamp": "yesterday"} for row in LOG[:2]] + LOG[2:]
    (trace,), told = told_by(tmp_path, *log)
    assert starts_of(trace.sessions[0]) == [0.0, 0.0]
    assert told == [(2, "no time can be read; taken as the session's first")]


def test_a_circle_in_a_claude_code_log_is_cut_once(tmp_path: Path) -> None:
    ring = [message("user", "1", "2", "a" * 300), LOG[1]]
    (trace,), told = told_by(tmp_path, *ring)
    assert trace.requests == 1
    assert sum("is above itself; cut there" in what for _, what in told) == 1


def cost_of(path: Path, calls: int) -> int:
    rows: list[Any] = []
    for n in range(calls):
        rows.append(message("user", f"u{n}", f"a{n - 1}" if n else None, "hello"))
        rows.append(message("assistant", f"a{n}", f"u{n}", "well"))
    (path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal found
        found += event == "call"

    sys.setprofile(count)
    try:
        assert sum(trace.requests for trace in read(path / "c.jsonl")) == calls
    finally:
        sys.setprofile(None)
    return found


def test_the_work_for_a_claude_code_log_grows_with_its_calls(tmp_path: Path) -> None:
    assert cost_of(tmp_path, 200) < 2.5 * cost_of(tmp_path, 100)


def test_a_circle_in_a_run_line_has_the_line_of_the_run(tmp_path: Path) -> None:
    notes = [
        {"session_id": "s", "parent_session_id": "t"},
        {"session_id": "t", "parent_session_id": "s"},
    ]
    about = {"kind": "run", "v": 1, "run_id": "r", "sessions": notes}
    (_,), (problem,) = read_all(file_of(tmp_path, call("s", 0, 0.0, 1.0), about))
    assert "is its own ancestor" in problem.what
    assert problem.line is not None


def test_calls_beyond_those_that_a_run_says_it_has_are_kept_and_told(tmp_path: Path) -> None:
    about = {"kind": "run", "v": 1, "run_id": "r", "calls": 2}
    rows = [call("a", n, n * 2.0, n * 2.0 + 1) for n in range(5)]
    other = {**call("b", 0, 0.0, 1.0), "run_id": "q"}
    (trace, _), (problem,) = read_all(file_of(tmp_path, about, *rows, other))
    assert trace.requests == 5
    assert (problem.line, "should have 2 calls, has 5" in problem.what) == (1, True)


@pytest.mark.parametrize("label", ["call-0", "call-1", "call-2"])
def test_a_call_in_no_session_meets_no_session_of_its_name(tmp_path: Path, label: str) -> None:
    rows = [call(None, 0, 0.0, 1.0), call(label, 0, 2.0, 3.0), call(None, 0, 4.0, 5.0)]
    (trace,), problems = read_all(file_of(tmp_path, *rows))
    assert problems == []
    assert [len(session.turns) for session in trace.sessions] == [1, 1, 1]
    assert label in [session.label for session in trace.sessions]
