"""What is promised of placement holds in the stored measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parents[2] / "docs/measurements"
VLLM = json.loads((DATA / "vllm_sessions.json").read_text("utf-8"))
SIMULATED = json.loads((DATA / "simulator.json").read_text("utf-8"))
SERVING = json.loads((DATA / "serving.json").read_text("utf-8"))


@pytest.mark.parametrize("run", VLLM["runs"], ids=lambda run: f"{run['api_processes']} processes")
def test_on_real_vllm_sessions_are_at_home_and_ranks_share_their_requests(
    run: dict[str, Any],
) -> None:
    figures, ours = run["compare"]["figures"], run["replay"][-1]
    hit = figures["hit_rate"]["b"]["value"]
    ceiling = hit / figures["hit_of_theoretical"]["b"]["value"]
    assert ceiling - hit <= 0.005
    assert figures["turns_short"]["b"]["value"] <= 0.01
    assert ours["sessions_on_one_rank"] >= 0.99 * ours["sessions"]
    requests = ours["requests_per_rank"]
    assert max(requests) * len(requests) <= 1.15 * sum(requests)


def of(rows: list[dict[str, Any]], placement: str) -> dict[int, dict[str, Any]]:
    return {row["tokens_per_rank"]: row for row in rows if row["placement"] == placement}


@pytest.mark.parametrize("part", ["placement", "more_sessions"])
def test_ranks_compute_no_more_than_with_sticky_sessions_and_all_of_them_as_much(part: str) -> None:
    ours, sticky = (of(SIMULATED[part], name) for name in ("tenuto", "session-sticky"))
    for size in (500_000, 1_000_000, 2_000_000):
        assert ours[size]["computed_tokens"] <= sticky[size]["computed_tokens"]
        assert ours[size]["imbalance"] <= 1.16


@pytest.mark.parametrize("part", ["forks", "inherits"])
def test_sessions_that_fork_compute_a_hundredth_more_at_most_and_evenly(part: str) -> None:
    ours, sticky = (of(SIMULATED[part], name) for name in ("tenuto", "session-sticky"))
    for size, row in ours.items():
        assert row["computed_tokens"] <= 1.01 * sticky[size]["computed_tokens"]
        assert row["imbalance"] <= 1.15


def test_no_session_moves_more_than_once_a_minute() -> None:
    parts = ("placement", "many_ranks", "more_sessions", "forks", "inherits", "skews")
    rows = [row for part in parts for row in SIMULATED[part] if row["placement"] == "tenuto"]
    assert max(row["most_moves"] for row in rows) <= 1


def test_a_million_sessions_take_no_more_memory_than_a_quarter_of_them() -> None:
    assert SERVING["sessions"] == 1_000_000
    first, last = SERVING["resident_kb"][1], SERVING["resident_kb"][-1]
    assert last <= 1.02 * first


def test_a_decision_and_a_request_cost_microseconds() -> None:
    assert max(SERVING["picking_at_64_ranks"].values()) <= 20
    assert SERVING["home_2_ranks"]["extra_us"] <= 60
