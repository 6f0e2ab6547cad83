from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tenuto.results import Header, TurnResult, read, write

HEADER = Header(name="a", traces={"t": "0" * 32, "u": "1" * 32}, target="simulator")
TURN = TurnResult("t", "main", "main", 0, 1, 100, 64, 5, 0.5, 1.0, 2.0, 3.0)


def later(turn: int, **changed: object) -> TurnResult:
    return replace(TURN, turn=turn, **changed)  # type: ignore[arg-type]


def made(path: Path, *turns: TurnResult, append: bool = False) -> Path:
    with write(path, append=append) as out:
        out.header(HEADER.model_copy(update={"resumed": int(append)}))
        for turn in turns:
            out.add(turn)
    return path


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_what_is_written_is_read_back(tmp_path: Path, name: str) -> None:
    full = later(1, rank=None, queue_s=0.25, reachable_tokens=64, error="APITimeoutError")
    results = read(made(tmp_path / name, TURN, full))
    assert results.header == HEADER
    assert results.turns == (TURN, full)
    assert results.problems == ()


def test_a_torn_last_line_is_dropped_with_a_note(tmp_path: Path) -> None:
    path = made(tmp_path / "r.jsonl", TURN, later(1))
    path.write_bytes(path.read_bytes()[:-20])
    results = read(path)
    assert results.turns == (TURN,)
    assert [(one.line, one.is_note) for one in results.problems] == [(3, True)]


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[1]",
        '{"kind":"turn","trace":"t"}',
        '{"kind":"turn","trace":"t","session":"main","agent":"main","turn":0,"rank":1,'
        '"prompt_tokens":1,"cached_tokens":0,"output_tokens":1,"due_s":0,"start_s":5,'
        '"first_token_s":4,"end_s":6}',
        '{"kind":"turn","trace":"t","session":"main","agent":"main","turn":0,"rank":1,'
        f'"prompt_tokens":{10**400},"cached_tokens":0,"output_tokens":1,"due_s":0,"start_s":5,'
        '"first_token_s":5,"end_s":6}',
    ],
)
def test_a_bad_line_is_named_and_loses_nothing_else(tmp_path: Path, line: str) -> None:
    path = made(tmp_path / "r.jsonl", TURN)
    path.write_text(path.read_text() + line + "\n")
    with write(path, append=True) as out:
        out.add(later(1))
    results = read(path)
    assert results.turns == (TURN, later(1))
    assert [(one.line, one.is_note) for one in results.problems] == [(3, False)]


def test_a_run_taken_up_replaces_all_lines_of_the_traces_it_plays_again(tmp_path: Path) -> None:
    other = replace(TURN, trace="u")
    path = made(tmp_path / "r.jsonl", other, TURN, later(1), later(2))
    path.write_bytes(path.read_bytes()[:-5])
    made(path, later(0, cached_tokens=1), append=True)
    results = read(path)
    assert set(results.turns) == {other, later(0, cached_tokens=1)}
    assert results.header.resumed == 1
    assert results.problems == ()


def test_a_file_without_a_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text("{}\n")
    with pytest.raises(ValueError, match=r"r\.jsonl: no header .* line 1: neither"):
        read(path)


def test_headers_of_two_runs_do_not_mix(tmp_path: Path) -> None:
    path = made(tmp_path / "r.jsonl", TURN)
    with write(path, append=True) as out:
        out.header(HEADER.model_copy(update={"seed": 7, "resumed": 1}))
    assert "differs from the first in seed" in read(path).problems[0].what


@pytest.mark.parametrize(
    ("turns", "is_known"),
    [
        ((later(0, cached_known=False), later(1, cached_known=False)), False),
        ((later(0, cached_known=False), later(1)), True),
        # Nobody could have found anything.
        ((later(0, cached_known=False, reachable_tokens=0),), True),
        ((later(0), later(1, cached_known=False, error="APITimeoutError")), True),
        ((), True),
    ],
)
def test_a_server_that_never_says_what_it_had_cached_is_known_by_its_turns(
    tmp_path: Path, turns: tuple[TurnResult, ...], is_known: bool
) -> None:
    results = read(made(tmp_path / "r.jsonl", *turns))
    assert results.header.cached_known == is_known
    assert results.turns == turns


@pytest.mark.parametrize("gpus", [0.0, -2.0, float("nan"), float("inf")])
def test_a_header_has_some_gpus_or_does_not_say(gpus: float) -> None:
    with pytest.raises(ValueError, match="gpus"):
        Header(name="a", traces={}, target="simulator", gpus=gpus)
