"""`make demo` on the embedded engine, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tenuto.report.table import COLUMNS

ROOT = Path(__file__).resolve().parents[2]
WITHOUT, WITH = "without tenuto", "with tenuto"
SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True)
class Demo:
    printed: str
    picture: str
    data: dict[str, Any]

    def total(self, side: str, workload: str = "both") -> dict[str, Any]:
        (row,) = [
            row
            for row in self.data["summaries"]
            if (row["side"], row["workload"]) == (side, workload)
        ]
        return {**row, **row["summary"]}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "examples.demo", *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    out = tmp_path_factory.mktemp("demo") / "out"
    done = run("--engine", "embedded", "--quick", "--out", str(out))
    assert done.returncode == 0, done.stderr
    return Demo(
        done.stdout,
        (out / "demo.svg").read_text(encoding="utf-8"),
        json.loads((out / "demo.json").read_text(encoding="utf-8")),
    )


def test_with_tenuto_each_session_stays_on_one_rank(demo: Demo) -> None:
    ranks: dict[tuple[str, str], set[int]] = defaultdict(set)
    for turn in demo.data["turns"][WITH]:
        ranks[turn["workload"], turn["session"]].add(turn["rank"])
    assert len(ranks) == 9 + 5
    assert {key: seen for key, seen in ranks.items() if len(seen) != 1} == {}


def test_without_tenuto_sessions_wander(demo: Demo) -> None:
    total = demo.total(WITHOUT)
    assert total["sessions_on_one_rank"] < total["sessions"]


@pytest.mark.parametrize("workload", ["three agent programs", "recorded coding session", "both"])
def test_with_tenuto_a_larger_share_of_the_prompts_is_cached(demo: Demo, workload: str) -> None:
    assert (
        demo.total(WITH, workload)["cached_share"] > demo.total(WITHOUT, workload)["cached_share"]
    )


def test_with_tenuto_every_later_turn_finds_its_last_prompt_cached(demo: Demo) -> None:
    block = 16
    last: dict[tuple[str, str], int] = {}
    for turn in demo.data["turns"][WITH]:
        key = turn["workload"], turn["session"]
        if key in last:
            assert turn["cached_tokens"] > last[key] - block
        last[key] = turn["prompt_tokens"]


@pytest.mark.parametrize("side", [WITHOUT, WITH])
def test_both_ranks_are_used_by_each_workload(demo: Demo, side: str) -> None:
    for workload in ("three agent programs", "recorded coding session"):
        assert all(count > 0 for count in demo.total(side, workload)["requests_per_rank"])


def test_both_sides_make_the_same_turns(demo: Demo) -> None:
    made = [
        sorted((turn["workload"], turn["session"], turn["turn"]) for turn in turns)
        for turns in demo.data["turns"].values()
    ]
    assert made[0] == made[1]
    assert len(made[0]) == 36 + 53


def test_the_picture_is_xml_with_a_box_for_each_turn(demo: Demo) -> None:
    groups = list(ET.fromstring(demo.picture).iter(f"{SVG}g"))
    assert len(groups) == sum(len(turns) for turns in demo.data["turns"].values())


def test_the_table_has_all_columns_and_a_line_for_each_workload_and_side(demo: Demo) -> None:
    heading, _, *rows = demo.printed.split("\n\n")[0].splitlines()
    assert all(column in heading for column in COLUMNS)
    assert len(rows) == 6


def test_the_output_says_that_the_times_are_modelled(demo: Demo) -> None:
    assert "times are modelled" in demo.printed
    assert "times are modelled" in demo.picture
    assert demo.data["times_are_modelled"] is True


def test_an_engine_that_does_not_start_is_said_and_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENUTO_VLLM_PYTHON", str(tmp_path / "nobody"))
    done = run("--engine", "vllm", "--quick", "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert "demo failed" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
