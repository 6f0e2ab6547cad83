"""`make demo` on the embedded engine, as a user runs it."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

from tenuto.results import Results, read
from tenuto.trace import read as read_traces

ROOT = Path(__file__).resolve().parents[2]
WITHOUT, WITH = "without-tenuto", "with-tenuto"
SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True)
class Demo:
    printed: str
    out: Path

    def side(self, name: str) -> Results:
        return read(self.out / f"{name}.jsonl")


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
    return Demo(done.stdout, out)


def test_the_agent_programs_are_recorded_with_their_agents(demo: Demo) -> None:
    traces = list(read_traces(demo.out / "programs.jsonl"))
    assert len(traces) == 3
    for trace in traces:
        agents = {session.agent for session in trace.sessions if session.turns}
        assert agents == {"planner", "tool-caller", "verifier"}
    assert sum(trace.requests for trace in traces) == 36


def test_with_tenuto_sessions_stay_on_one_rank_but_for_few_whose_home_is_busy(demo: Demo) -> None:
    ranks: dict[tuple[str, str], set[int | None]] = defaultdict(set)
    for turn in demo.side(WITH).turns:
        ranks[f"{turn.repeat} {turn.trace}", turn.session].add(turn.rank)
    assert len(ranks) == 2 * (9 + 5)
    assert [len(seen) for seen in ranks.values()].count(1) >= 24


def test_without_tenuto_sessions_wander_and_less_of_the_prompts_is_cached(demo: Demo) -> None:
    without, ours = (demo.side(name).turns for name in (WITHOUT, WITH))
    ranks: dict[tuple[str, str], set[int | None]] = defaultdict(set)
    for turn in without:
        ranks[turn.trace, turn.session].add(turn.rank)
    assert any(len(seen) == 2 for seen in ranks.values())
    assert sum(t.cached_tokens for t in ours) > sum(t.cached_tokens for t in without)


def test_both_sides_make_the_same_turns(demo: Demo) -> None:
    made = [
        sorted((turn.trace, turn.session, turn.turn) for turn in demo.side(name).turns)
        for name in (WITHOUT, WITH)
    ]
    assert made[0] == made[1]
    assert len(made[0]) == 2 * (36 + 53)


def test_the_picture_is_xml_with_a_box_for_each_turn(demo: Demo) -> None:
    picture = (demo.out / "demo.svg").read_text(encoding="utf-8")
    assert len(list(ET.fromstring(picture).iter(f"{SVG}g"))) == 2 * (36 + 53)
    assert "times are modelled" in picture


def test_what_was_lost_to_placement_is_on_the_table_and_on_the_page(demo: Demo) -> None:
    # Which cause is named depends on the times of a busy machine; the tokens do not.
    assert "placement: on another rank" in demo.printed
    assert "placement: on another rank" in (demo.out / "demo.html").read_text(encoding="utf-8")
    lost = [
        sum(
            max(0, (turn.reachable_tokens or 0) - (turn.rank_reachable_tokens or 0))
            for turn in demo.side(name).turns
        )
        for name in (WITHOUT, WITH)
    ]
    assert lost[1] < lost[0] / 2


def test_an_engine_that_does_not_start_is_said_and_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENUTO_VLLM_PYTHON", str(tmp_path / "nobody"))
    done = run("--engine", "vllm", "--quick", "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert "demo failed" in done.stderr
    assert "Traceback" not in done.stderr
