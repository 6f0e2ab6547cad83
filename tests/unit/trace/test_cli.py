from __future__ import annotations

import json
from pathlib import Path

import pytest

from tenuto.cli.trace import main
from tenuto.trace import read
from tests.unit.trace.events import call, file_of

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/traces/weka_trace_0277_f8.jsonl.gz"

Captured = pytest.CaptureFixture[str]


def test_info_prints_figures_and_bars(capsys: Captured) -> None:
    assert main(["info", str(EXAMPLE)]) == 0
    said = capsys.readouterr().out
    assert "1 traces, 5 sessions, 53 calls" in said
    assert "4 forks (4 waited for) in 1 traces" in said
    assert "█" in said


def test_info_as_json_has_the_hit_rates(capsys: Captured) -> None:
    assert main(["info", "--json", str(EXAMPLE)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["calls"] == 53
    assert 0.5 < found["theoretical_hits"]["all"]["block_rate"] < 1
    assert found["theoretical_hits"]["subagents"]["tokens"] > 0


def test_info_draws_a_picture(tmp_path: Path, capsys: Captured) -> None:
    assert main(["info", str(EXAMPLE), "--plot", str(tmp_path / "p.svg")]) == 0
    assert "<svg" in (tmp_path / "p.svg").read_text()


def test_a_fault_is_printed_with_file_and_line_and_the_rest_counts(
    tmp_path: Path, capsys: Captured
) -> None:
    file = file_of(tmp_path, call("a", 0, 0.0, 1.0), b"x\n", call("a", 1, 2.0, 3.0))
    assert main(["info", str(file)]) == 1
    said = capsys.readouterr()
    assert "tenuto trace: run.jsonl:2: not an event" in said.err
    assert "1 traces, 1 sessions, 2 calls" in said.out


def test_a_torn_last_line_is_printed_and_is_no_fault(tmp_path: Path, capsys: Captured) -> None:
    assert main(["info", str(file_of(tmp_path, call("a", 0, 0.0, 1.0), b'{"kind'))]) == 0
    assert "run.jsonl:2: the last line is torn" in capsys.readouterr().err


def test_convert_scales_a_chosen_trace(tmp_path: Path, capsys: Captured) -> None:
    target = tmp_path / "out.jsonl.gz"
    chosen = ["--id", "trace_0277", "--factor", "4", "--times", "0.5"]
    assert main(["convert", str(EXAMPLE), str(target), "--to", "weka", *chosen]) == 0
    assert "5 sessions, 53 calls, blocks of 2 tokens" in capsys.readouterr().err
    (before,), (after,) = read(EXAMPLE), read(target)
    assert after.block_size == 2
    assert after.sessions[0].turns[-1].start_s == before.sessions[0].turns[-1].start_s / 2


@pytest.mark.parametrize("to", ["tenuto", "weka", "mooncake"])
def test_convert_writes_each_format_that_can_be_written(tmp_path: Path, to: str) -> None:
    assert main(["convert", str(EXAMPLE), str(tmp_path / "out.jsonl"), "--to", to]) == 0
    (trace,) = read(tmp_path / "out.jsonl")
    assert (trace.source, trace.requests) == ("weka" if to == "tenuto" else to, 53)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--id", "nobody"], "holds no trace nobody"),
        (["--factor", "3"], "factor 3 does not divide"),
        (["--times", "0"], "must be more than 0"),
        (["--format", "otel", "--id", "x"], "holds no trace x"),
    ],
)
def test_convert_says_what_is_wrong_and_writes_nothing(
    tmp_path: Path, capsys: Captured, arguments: list[str], message: str
) -> None:
    target = tmp_path / "out.jsonl.gz"
    assert main(["convert", str(EXAMPLE), str(target), *arguments]) == 1
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path: Path, capsys: Captured) -> None:
    assert main(["info", str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl" in capsys.readouterr().err


def test_help_tells_the_formats(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    said = capsys.readouterr().out
    assert stopped.value.code == 0
    assert said.startswith("usage: tenuto trace")
    assert "claude-code" in said
    assert "proxy" in said
