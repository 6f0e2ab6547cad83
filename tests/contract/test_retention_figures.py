"""What is promised of retention holds in the stored measurements, which the page is written from.

That the workload comes to the stored rows is tests/vllm/test_retention_workload.py's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

# It needs no vLLM, as nothing here does.
from benchmarks.retention.page import PAGE, page, stored

DATA = Path(__file__).parents[2] / "docs/measurements"
WORKLOAD, COST, SERVING = (
    json.loads((DATA / f"retention_{name}.json").read_text("utf-8"))
    for name in ("workload", "cost", "serving")
)
ROWS = {(row["pool"], row["policy"]): row for row in WORKLOAD}
POOLS = sorted({pool for pool, _ in ROWS})
LRU = "vLLM's LRU"
FLOORS = {
    (1000, "markers"): 0.64,
    (1000, "markers with gaps"): 0.72,
    (1000, "20 % wrong"): 0.58,
    (1400, "markers"): 0.78,
    (1400, "markers with gaps"): 0.81,
}


def test_the_page_is_what_the_stored_measurements_say() -> None:
    assert PAGE.read_text("utf-8") == page(stored())


def test_every_size_of_the_cache_was_measured() -> None:
    assert POOLS == [700, 1000, 1400]
    assert len({policy for _, policy in ROWS}) * len(POOLS) == len(WORKLOAD)


@pytest.mark.parametrize(("pool", "policy"), FLOORS)
def test_agents_find_at_least_so_much_of_their_prompts_in_the_cache(pool: int, policy: str) -> None:
    assert round(ROWS[pool, policy]["hit"], 2) >= FLOORS[pool, policy]


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("policy", ["no release", "gaps, no release"])
def test_without_any_release_it_is_not_below_lru(pool: int, policy: str) -> None:
    assert ROWS[pool, policy]["hit"] >= ROWS[pool, LRU]["hit"]


@pytest.mark.parametrize("pool", POOLS)
def test_who_asks_once_waits_no_longer_than_under_lru(pool: int) -> None:
    for policy in ("markers", "markers with gaps", "no release", "gaps, no release", "20 % wrong"):
        assert ROWS[pool, policy]["chat_ttft_p95_ms"] <= ROWS[pool, LRU]["chat_ttft_p95_ms"]


@pytest.mark.parametrize("pool", POOLS)
def test_without_markers_it_is_lru(pool: int) -> None:
    stock, ours = ROWS[pool, LRU], ROWS[pool, "no markers"]
    assert {**ours, "policy": "", "counts": {}} == {**stock, "policy": "", "counts": {}}


@pytest.mark.parametrize("case", ["request", "request, no marker"])
@pytest.mark.parametrize("call", ["get_new_blocks", "touch", "free_blocks"])
def test_a_call_for_a_prompt_of_100_000_tokens_costs_half_as_much_again_at_most(
    case: str, call: str
) -> None:
    assert COST[case][call]["ratio"] <= 1.5


@pytest.mark.parametrize("case", ["step", "step, no marker"])
def test_a_step_beside_10_000_leased_blocks_costs_three_hundredths_more_at_most(case: str) -> None:
    assert COST[case]["ratio"] <= 1.03


def uncached(run: dict[str, Any]) -> float:
    stock, ours = (run["sides"][name]["uncached_tokens"] for name in ("stock", "tenuto"))
    return ours / stock


@pytest.mark.parametrize("run", SERVING["runs"], ids=lambda run: f"{run['pool_blocks']} blocks")
def test_on_real_vllm_answers_are_equal_and_agents_compute_no_more(run: dict[str, Any]) -> None:
    assert run["answers_equal"] == run["answers_compared"] > 0
    stock, ours = (run["sides"][name] for name in ("stock", "tenuto"))
    assert (stock["calls"], stock["prompt_tokens"]) == (ours["calls"], ours["prompt_tokens"])
    assert uncached(run) <= 1.01


def test_on_real_vllm_agents_compute_35_percent_less_in_the_smallest_cache() -> None:
    assert uncached(min(SERVING["runs"], key=lambda run: run["pool_blocks"])) <= 0.65
