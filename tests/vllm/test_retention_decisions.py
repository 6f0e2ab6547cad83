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


def test_the_simulator_computes_what_the_engine_did_and_says_what_others_would_have(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    computed = sum(line["input_tokens"] - line["cached_tokens"] for line in lines)
    options = ["--ranks", "1", "--service", "recorded", "--hint-sigma", "0", "--json"]
    sizes = ["--tokens-per-rank", "16000", "1000000", "--retention", "lru", "hinted"]
    assert main(["simulate", str(log), *options, *sizes]) == 0
    lru, ours, _, large = json.loads(capsys.readouterr().out)
    assert (lru["retention"], ours["retention"]) == ("lru", "hinted")
    assert ours["computed_tokens"] == pytest.approx(computed, rel=0.1)
    assert lru["computed_tokens"] > 1.3 * computed
    assert large["hit"] == large["theoretical_hit"] > ours["hit"]
