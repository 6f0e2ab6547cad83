from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from tenuto.cli.trace import main
from tenuto.cli.trace_plot import draw
from tenuto.trace import Session, Trace, TraceStats, Turn, read, stats
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


def test_info_names_the_first_traces_and_all_when_asked(tmp_path: Path, capsys: Captured) -> None:
    rows = [{**call("a", 0, 0.0, 1.0), "run_id": f"run-{n}"} for n in range(23)]
    file = file_of(tmp_path, *rows)
    assert main(["info", str(file)]) == 0
    said = capsys.readouterr().out
    assert "run-19 " in said
    assert "run-20" not in said
    assert "and 3 more (--ids)" in said
    assert main(["info", str(file), "--ids"]) == 0
    assert "run-22 " in capsys.readouterr().out
    assert main(["info", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["listed"][22] == {
        "id": "run-22",
        "sessions": 1,
        "calls": 1,
    }


def test_info_says_which_calls_nobody_counted_and_takes_no_guess_for_a_fact(
    tmp_path: Path, capsys: Captured
) -> None:
    unknown = {"input_tokens": None, "output_tokens": None}
    text = {"block_size": None, "blocks": [], "input_bytes": 400}
    file = file_of(tmp_path, call("a", 0, 0.0, 1.0), {**call("a", 1, 2.0, 3.0), **text, **unknown})
    assert main(["info", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["uncounted_calls"] == 1
    assert (found["input_tokens"]["count"], found["output_tokens"]["count"]) == (2, 1)
    assert main(["info", str(file)]) == 0
    said = capsys.readouterr().out
    assert "\nabout 109 input tokens, 1 output tokens" in said
    assert 'stream_options={"include_usage": True}' in said
    alone = {**call("a", 1, 2.0, 3.0), **text, **unknown}
    assert main(["info", str(file_of(tmp_path, {**alone, "turn": 0}))]) == 0
    assert "\nabout 100 input tokens, output tokens unknown\n" in capsys.readouterr().out
    assert main(["info", str(file_of(tmp_path, call("a", 0, 0.0, 1.0)))]) == 0
    said = capsys.readouterr().out
    assert "\n9 input tokens, 1 output tokens" in said
    assert "stream_options" not in said


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


def panels_of(found: TraceStats, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    drawn: list[Any] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    draw(found, Path("unused.svg"))
    return {axes.get_title(): axes for axes in drawn[0].axes}


def test_a_picture_of_few_values_shows_each_of_them_on_a_straight_axis(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = tuple(Turn(((1, 2),), 130 + n, 9, n * 10.0, n * 10.0 + 1) for n in range(3))
    panels = panels_of(stats([Trace("r", 64, (Session("a", "main", turns),))]), monkeypatch)
    assert all(axes.get_xlabel() for axes in panels.values())
    single, narrow = panels["turns / session"], panels["input tokens / call"]
    assert (single.get_xlabel(), narrow.get_xlabel()) == ("turns", "tokens")
    assert (single.get_xscale(), narrow.get_xscale()) == ("linear", "linear")
    for axes, values in ((single, [3]), (narrow, [130, 131, 132])):
        marks = [line for line in axes.lines if line.get_marker() == "o"]
        assert [list(line.get_xdata()) for line in marks] == [values]
        low, high = axes.get_xlim()
        assert low < values[0] <= values[-1] < high


def test_a_picture_of_nothing_is_drawn(tmp_path: Path) -> None:
    draw(stats([]), tmp_path / "p.svg")
    assert "<svg" in (tmp_path / "p.svg").read_text()


def test_a_picture_of_values_far_apart_has_a_logarithmic_axis(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    panels = panels_of(stats(read(EXAMPLE)), monkeypatch)
    assert panels["fresh tokens / turn"].get_xscale() == "symlog"
    assert panels["gap to the next call, by the end of the answer"].get_xlabel() == "seconds"


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


def test_convert_splits_what_a_format_cannot_say(tmp_path: Path, capsys: Captured) -> None:
    source = file_of(tmp_path, call("a", 0, 0.0, 1.0), call("b", 0, 5.0, 6.0))
    target = tmp_path / "out.jsonl"
    assert main(["convert", str(source), str(target), "--to", "weka"]) == 1
    assert "convert --split" in capsys.readouterr().err
    assert main(["convert", str(source), str(target), "--to", "weka", "--split"]) == 0
    assert [trace.id for trace in read(target)] == ["r/a", "r/b"]


def test_a_recording_becomes_each_format_in_the_ways_that_the_docs_show(tmp_path: Path) -> None:
    text = {"block_size": None, "block_bytes": 256, "input_bytes": 3000, "blocks": [[5, 11]]}
    source = file_of(tmp_path, call("a", 0, 0.0, 1.0, **text) | {"input_tokens": 2919})
    target = tmp_path / "out.jsonl.gz"
    asked = ["--to", "weka", "--id", "r", "--factor", "8", "--times", "0.1"]
    assert main(["convert", str(source), str(target), *asked]) == 0
    assert [trace.block_size for trace in read(target)] == [8]


DOCS = Path(__file__).resolve().parents[3] / "docs/traces.md"
COMMANDS = re.findall(
    r"^    tenuto trace ((?:info|convert) [^#\n]*)",
    DOCS.read_text("utf-8").replace("\\\n", " "),
    re.MULTILINE,
)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_in_the_docs_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (tmp_path / "examples").symlink_to(DOCS.parents[1] / "examples")
    monkeypatch.chdir(tmp_path)
    file_of(tmp_path, call("a", 0, 0.0, 1.0), call("b", 0, 5.0, 6.0))
    assert main(shlex.split(command)) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--id", "nobody"], "holds no trace nobody; it holds trace_0277"),
        (["--factor", "3"], "factor 3 does not divide"),
        (["--times", "0"], "must be more than 0"),
        (["--format", "otel", "--id", "x"], "holds no trace x; it holds none"),
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
