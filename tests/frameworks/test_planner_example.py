"""The planner's example, in both frameworks, on its scripted model and on any server."""

from __future__ import annotations

import asyncio
import functools
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import tenuto
from examples.planner import PROGRAMS, program
from examples.planner.scripted import answers
from examples.planner.task import MOST_ROUNDS
from tenuto.trace import CallEvent, read_events
from tenuto_vllm.embedded import EngineSettings, serve
from tests.frameworks.closing import Closing
from tests.frameworks.scripted import Model

ROOT = Path(__file__).parents[2]


class Row(NamedTuple):
    agent: str
    turns: int
    prompt_tokens: int
    cached_percent: int
    ranks: str


@functools.cache
def run(framework: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "examples.planner", "--framework", framework, *arguments]
    done = subprocess.run(
        command,
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "", "TENUTO_KEY": "for the test"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def rows_of(printed: str) -> list[Row]:
    found = re.findall(r"^([^\d\n]+?)(?: \d)? +(\d+) +([\d,]+) +(\d+)%(.*)$", printed, re.MULTILINE)
    return [
        Row(agent, int(turns), int(tokens.replace(",", "")), int(cached), ranks.strip())
        for agent, turns, tokens, cached, ranks in found
    ]


def solved(framework: str, base_url: str, path: Path) -> tuple[str, list[CallEvent]]:
    """Run the program in this process; return its answer and its calls."""
    with tenuto.record(path):
        answer = asyncio.run(program(framework)(base_url, "tiny", "k"))
    return answer, [event for event in read_events(path) if isinstance(event, CallEvent)]


@pytest.mark.parametrize("framework", PROGRAMS)
def test_the_wrong_step_is_repaired_and_each_session_keeps_its_rank_and_its_cache(framework: str):
    printed = run(framework)
    assert "Together: 416 euros." in printed
    rows = rows_of(printed)
    # Three steps, and one of them again.
    turns = [(row.agent.split("/")[-1], row.turns) for row in rows]
    assert turns == [("planner", 4), *[("worker", 2)] * 3, ("verifier", 2), ("worker", 2)]
    assert {row.ranks for row in rows} <= {"0", "1"}
    assert all(row.cached_percent > 40 for row in rows)


def test_both_frameworks_give_the_same_picture():
    langgraph, agents = (
        sorted((row.turns, row.prompt_tokens) for row in rows_of(run(one))) for one in PROGRAMS
    )
    assert langgraph == agents


@pytest.mark.parametrize("framework", PROGRAMS)
def test_a_server_that_knows_nothing_of_tenuto_is_asked_the_same(framework: str):
    with serve(EngineSettings(answers=answers, served_model_name="m")) as url:
        printed = run(framework, "--base-url", f"{url}/v1", "--model", "m")
    assert "Together: 416 euros." in printed
    assert [row.turns for row in rows_of(printed)] == [4, 2, 2, 2, 2, 2]
    assert {row.ranks for row in rows_of(printed)} == {""}


@pytest.mark.parametrize("framework", PROGRAMS)
def test_the_workers_run_side_by_side_below_one_run(framework: str, tmp_path: Path):
    # Slow enough for calls to overlap.
    with serve(EngineSettings(answers=answers, decode_tokens_per_s=500), [Closing]) as url:
        _, calls = solved(framework, f"{url}/v1", tmp_path / "run.jsonl")
    assert len({call.run_id for call in calls}) == 1
    first = [call for call in calls if call.agent_name.endswith("worker") and call.turn == 0][:3]
    assert len({call.session_id for call in first}) == 3
    assert max(call.start_s for call in first) < min(call.end_s or 0 for call in first)


@pytest.mark.parametrize("framework", PROGRAMS)
def test_an_answer_that_never_passes_is_given_after_the_last_review(
    framework: str, model: Model, tmp_path: Path
):
    model.script = lambda asked: "REPAIR: all of it"
    answer, calls = solved(framework, model.base_url, tmp_path / "run.jsonl")
    assert answer == "REPAIR: all of it"
    assert len(calls) == 2 * MOST_ROUNDS
