"""Several files of one recording, read as one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenuto.trace import Problem, TraceError, read, read_all
from tests.unit.trace.events import call, file_of

TURNS = [call("a", turn, turn * 10.0, turn * 10.0 + 5) for turn in range(6)]


def folder(tmp_path: Path, name: str) -> Path:
    made = tmp_path / name
    made.mkdir()
    return made


def test_parts_of_a_run_in_several_files_are_one_trace(tmp_path: Path) -> None:
    whole = file_of(folder(tmp_path, "whole"), *TURNS)
    parts = [file_of(folder(tmp_path, f"part-{n}"), *TURNS[2 * n : 2 * n + 2]) for n in range(3)]
    assert list(read_all(parts)) == list(read(whole))


def test_a_problem_of_a_part_names_its_file_and_the_line_there(tmp_path: Path) -> None:
    one = file_of(folder(tmp_path, "one"), *TURNS[:2])
    other = file_of(folder(tmp_path, "other"), TURNS[2], {**TURNS[3], "v": 99})
    other = other.rename(other.with_name("other.jsonl"))
    told: list[Problem] = []
    assert sum(trace.requests for trace in read_all([one, other], on_problem=told.append)) == 3
    assert [(problem.path, problem.line) for problem in told] == [("other.jsonl", 2)]


def test_files_of_several_formats_are_read_one_after_another(tmp_path: Path) -> None:
    own = file_of(folder(tmp_path, "own"), *TURNS)
    weka = Path(__file__).parents[3] / "examples/traces/weka_trace_0277_f8.jsonl.gz"
    assert len(list(read_all([own, weka, own]))) == 3


def test_a_fault_in_one_file_hides_nothing_of_the_next(tmp_path: Path) -> None:
    bad = file_of(folder(tmp_path, "bad"), {**TURNS[0], "v": 99}, TURNS[0])
    weka = Path(__file__).parents[3] / "examples/traces/weka_trace_0277_f8.jsonl.gz"
    told: list[Problem] = []
    assert len(list(read_all([bad, weka], on_problem=told.append))) == 2
    assert len(told) == 1
    with pytest.raises(TraceError, match="version"):
        list(read_all([bad, weka]))
