"""The decision log is a trace: what reads and simulates traces reads and simulates it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.retention.agents_and_chat import Client, run
from tenuto.cli import main
from tenuto.trace import read
from tenuto_vllm import TurnScheduler


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENUTO_DECISION_LOG", str(tmp_path / "made"))
    run(TurnScheduler, 1000, Client(gaps=True), seed=0)
    [path] = (tmp_path / "made").iterdir()
    return path


def test_it_has_every_call_with_what_it_shared_what_it_found_and_what_was_decided(
    log: Path,
) -> None:
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    agents = [line for line in lines if "session_id" in line]
    assert len(agents) == 12 * 8
    assert {line["extra"]["decision"] for line in agents} == {"leased", "ordinary"}
    assert {line["extra"]["decision"] for line in lines if line not in agents} == {"none"}
    assert all(line["extra"]["told_s"] > 0 for line in agents if "told_s" in line["extra"])
    assert lines[-1]["extra"]["counts"]["leased"] == 12 * 7
    traces = {trace.id: trace for trace in read(log)}
    for number in range(12):
        [session] = traces[f"run{number}"].sessions
        for before, turn in zip(session.turns, session.turns[1:], strict=False):
            shared = before.block_ids
            assert turn.block_ids[: len(shared)] == shared
            assert turn.cached_tokens is not None
            assert turn.cached_tokens <= 16 * turn.block_count


def test_the_simulator_says_what_other_caches_and_policies_would_have_done(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--ranks", "1", "--tokens-per-rank", "16000", "1000000", "--json"]
    assert main(["simulate", str(log), *options, "--retention", "lru", "hinted"]) == 0
    small_lru, small, _, large = json.loads(capsys.readouterr().out)
    assert (small_lru["retention"], small["retention"]) == ("lru", "hinted")
    assert small["computed_tokens"] < small_lru["computed_tokens"]
    assert large["hit"] == large["theoretical_hit"] > small["hit"]
