"""`tenuto compare` on small files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tenuto.cli.compare import main
from tenuto.cli.fit import main as fit_main
from tenuto.errors import ConfigError
from tenuto.results import Results, write
from tenuto.trace import write as write_traces
from tests.unit.compare.made import Server, run
from tests.unit.replay.programs import FORKS


def put(path: Path, results: Results) -> str:
    with write(path) as writer:
        writer.header(results.header)
        for turn in results.turns:
            writer.add(turn)
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    server = Server()
    sides = {
        "base": server,
        "moved": replace(server, moves=0.6),
        "slow": replace(server, s_per_output=0.02),
    }
    return [
        put(tmp_path / f"{name}.jsonl", run(side, number, traces=9, turns=15, name=name))
        for number, (name, side) in enumerate(sides.items())
    ]


def test_the_table_names_the_cause_the_sides_and_what_was_resampled(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*files[:2], "--gpu-usd-per-hour", "2"]) == 0
    out = capsys.readouterr().out
    assert "Placement moved" in out
    assert "over 9 traces and 2 repeats" in out
    for label in ("TTFT p99", "total tokens per GPU-second", "USD per million output tokens"):
        assert label in out
    assert re.search(r"^A  base$", out, re.MULTILINE)


def test_a_reader_that_leaves_early_ends_the_command_without_a_traceback(files: list[str]) -> None:
    command = [sys.executable, "-m", "tenuto.cli", "compare", *files, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_json_has_a_verdict_for_each_file_against_the_first(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*files, "--json", "--name", "a", "--name", "b"]) == 0
    made = json.loads(capsys.readouterr().out)["comparisons"]
    assert [one["verdict"]["cause"] for one in made] == ["placement", "decode"]
    assert [one["names"] for one in made] == [["a", "b"], ["a", "slow"]]
    assert sum(made[1]["verdict"]["shares"].values()) == pytest.approx(1)


def test_several_files_stand_side_by_side(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(files) == 0
    heading = capsys.readouterr().out.splitlines()[0]
    assert heading.split() == ["figure", "base", "moved", "slow"]


def test_the_page_is_whole_in_itself_and_escapes_names(files: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    assert main([*files, "--html", str(out), "--name", "<script>", "--name", "&b"]) == 0
    text = out.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    outside = re.findall(r'(?:src|href)\s*=|url\(["\']?http|@import', text)
    assert not outside
    drawn = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawn) == 2 * 6
    for svg in drawn:
        numbers = [
            float(value)
            for element in ET.fromstring(svg).iter()
            for name in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy")
            if (value := element.attrib.get(name))
        ]
        assert all(-5 <= number < 5_000 for number in numbers)
    assert "prefers-color-scheme: dark" in text
    assert "tenuto compare" in text


def test_what_must_not_be_compared_is_refused_with_reasons(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = run(Server(), 1, traces=9, turns=15)
    seeded = replace(made, header=made.header.model_copy(update={"seed": 3}))
    other = put(tmp_path / "other.jsonl", seeded)
    assert main([files[0], other]) == 2
    err = capsys.readouterr().err
    assert "seed: 0 in A, 3 in B" in err
    assert "--allow seed lets it pass" in err
    assert main([files[0], other, "--allow", "seed"]) == 0
    assert "allowed: seed: 0 in A, 3 in B" in capsys.readouterr().out


def test_turns_that_are_missing_have_no_option_that_lets_them_pass(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = run(Server(), 1, traces=9, turns=15)
    other = put(tmp_path / "other.jsonl", replace(made, turns=made.turns[:40]))
    assert main([files[0], other]) == 2
    err = capsys.readouterr().err
    assert "--allow" not in err
    assert "--resume" in err


def test_a_trace_is_told_from_a_result_file_once(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.jsonl"
    write_traces(trace, [FORKS])
    told = f"{trace} is a trace: `tenuto replay` it first"
    with pytest.raises(ConfigError) as refused:
        main([files[0], str(trace)])
    assert str(refused.value) == told
    assert fit_main([str(trace)]) == 1
    assert capsys.readouterr().err == f"tenuto fit: {told}\n"


def test_sides_are_called_as_their_headers_say_where_that_tells_them_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def put_named(file: str, name: str) -> str:
        return put(tmp_path / file, run(Server(), 0, traces=3, turns=5, name=name))

    one, other, same = put_named("a", "stock"), put_named("b", "ours"), put_named("c", "stock")
    shown = {}
    for given in ((one, other), (one, same), (one, other, "--name", "X")):
        assert main([*given, "--json"]) == 0
        shown[given[1:]] = json.loads(capsys.readouterr().out)["comparisons"][0]["names"]
    assert list(shown.values()) == [["stock", "ours"], ["a", "c"], ["X", "b"]]


def test_a_bad_line_is_told_and_the_rest_is_compared(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(files[1])
    path.write_text(path.read_text(encoding="utf-8") + '{"kind": "turn"}\n', encoding="utf-8")
    assert main(files[:2]) == 1
    told = capsys.readouterr()
    assert re.search(r"moved\.jsonl, line \d+: ", told.err)
    assert "Placement moved" in told.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{0}"], "two result files"),
        (["{0}", "missing.jsonl"], "missing.jsonl: no such file"),
        (["{0}", "{1}", "--allow", "weather"], "--allow knows no 'weather'"),
        (["{0}", "{1}", *["--name=x"] * 3], "3 names for 2 files"),
        (["{0}", "{1}", "--html", "/"], "--html /: "),
        (["{0}", "{1}", "--html", "{0}/out.html"], "out.html: Not a directory"),
    ],
)
def test_usage_errors_say_what_to_do(files: list[str], arguments: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        main([one.format(*files) for one in arguments])


@pytest.mark.parametrize("value", ["-1", "1.5", "many"])
def test_a_seed_is_a_number_from_zero(
    files: list[str], value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*files[:2], f"--seed={value}"])
    assert ended.value.code == 2
    assert "--seed" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "many"])
def test_a_price_is_above_zero(
    files: list[str], value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*files[:2], f"--gpu-usd-per-hour={value}"])
    assert ended.value.code == 2
    assert "--gpu-usd-per-hour" in capsys.readouterr().err
