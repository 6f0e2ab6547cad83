"""`tenuto simulate` as a user runs it: what the table says, what is refused, what is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tenuto.cli.simulate import main
from tenuto.cli.simulate_table import table
from tenuto.results import read
from tenuto.simulate import Setup, outcome_of, simulate
from tenuto.trace import Session, Trace, Turn, write

GROWING = Trace(
    "t",
    16,
    (
        Session(
            "main",
            "main",
            tuple(Turn(((1, 4 * n),), 64 * n + 3, 5, 10.0 * n, 10.0 * n + 2) for n in range(1, 9)),
        ),
    ),
)
OUTCOME = outcome_of(simulate([GROWING], Setup(ranks=2)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "t.jsonl"
    write(path, [GROWING])
    return path


def run(path: Path, *options: str) -> int:
    return main([str(path), "--quiet", "--ranks", "2", *options])


def cells(text: str, number: int = 1) -> list[str]:
    return [cell.strip() for cell in text.splitlines()[number].split("|")[1:-1]]


def test_calls_that_fit_no_rank_have_a_column_and_are_told(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--tokens-per-rank", "320", "100000"]
    assert run(path, *sizes, "--placement", "round-robin", "session-sticky", "--markdown") == 0
    shown = capsys.readouterr()
    at = cells(shown.out, 0).index("refused")
    found = [cells(shown.out, number)[at] for number in (2, 3, 4, 5)]
    assert found == ["4 of 8", "4 of 8", "0 of 8", "0 of 8"]
    assert shown.err == (
        "tenuto simulate: 4 of 8 calls are longer than a rank's cache of 320 tokens and were "
        "refused: no figure counts them\n"
    )


@pytest.mark.parametrize("known", [True, False])
def test_lengths_that_nobody_counted_are_told(
    known: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (session,) = GROWING.sessions
    turns = tuple(
        replace(turn, guessed=() if known else ("input_tokens",)) for turn in session.turns
    )
    path = tmp_path / "guessed.jsonl"
    write(path, [replace(GROWING, sessions=(replace(session, turns=turns),))])
    assert run(path) == 0
    told = "tenuto simulate: 8 of 8 calls have no token counts"
    assert capsys.readouterr().err.startswith(told) is not known


def test_a_set_up_that_can_run_nothing_has_no_figures_and_fails(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(path, "--tokens-per-rank", "32", "--markdown") == 1
    shown = capsys.readouterr()
    assert cells(shown.out, 2)[4:] == ["8 of 8", *["-"] * 8]
    assert "8 of 8 calls are longer" in shown.err


def test_where_nothing_is_refused_nothing_is_said_of_it(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(path) == 0
    shown = capsys.readouterr()
    assert "refused" not in shown.out
    assert shown.err == ""


@pytest.mark.parametrize(
    ("change", "computed", "lost"),
    [
        ({"computed_tokens": 1_234, "lost_to_placement": 0}, ("tokens", "1,234"), "0"),
        ({"computed_tokens": 98_765_432, "lost_to_placement": 0}, ("Mtok", "98.8"), "0.0"),
        (
            {"computed_tokens": 98_765_432, "lost_to_placement": 40_000},
            ("tokens", "98,765,432"),
            "40,000",
        ),
    ],
)
def test_counts_are_in_millions_only_where_none_of_them_would_vanish(
    change: dict[str, int], computed: tuple[str, str], lost: str
) -> None:
    shown = table([replace(OUTCOME, lost_to_retention=0, **change)], markdown=True)
    row = dict(zip(cells(shown, 0), cells(shown, 2), strict=True))
    unit, count = computed
    assert row[f"computed {unit}"] == count
    assert row[f"lost to placement {unit}"] == lost


def test_a_recorded_service_says_nothing_of_the_first_token(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for service, is_shown in (("recorded", False), ("modelled", True)):
        run(path, "--service", service, "--markdown")
        shown = capsys.readouterr().out
        assert (cells(shown, 2)[-2:] != ["-", "-"]) == is_shown


def test_a_result_file_is_kept_unless_it_may_be_written_over(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    assert run(path, "--out", str(out)) == 0
    assert run(path, "--out", str(out), "--seed", "5") == 1
    assert "out.jsonl is there: --overwrite writes it anew, or name another" in (
        capsys.readouterr().err
    )
    assert read(out).header.seed == 0
    assert run(path, "--out", str(out), "--seed", "5", "--overwrite") == 0
    assert read(out).header.seed == 5
    assert run(path, "--out", str(path), "--overwrite") == 1
    assert "is a trace; name another" in capsys.readouterr().err


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_caches_that_no_memory_holds_are_told_in_one_line(
    jobs: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = [str(10**16), str(10**17)]
    assert run(path, "--tokens-per-rank", *tokens, "--jobs", jobs) == 1
    told = capsys.readouterr().err
    assert "no memory for caches" in told
    assert told.count("\n") == 1
