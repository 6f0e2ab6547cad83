"""Agents beside chat on vLLM's own scheduler: they find at least so much in the cache.

The clock is virtual and everything follows from the seeds, so that a row is the same on each
machine. The floors are means over these five seeds, to two decimals.
"""

from __future__ import annotations

import functools

import pytest

from benchmarks.retention.workload import (
    LRU,
    MARKED,
    NO_RELEASE,
    POOLS,
    UNMARKED,
    WITH_GAPS,
    WRONG,
    row,
)

FLOORS = {
    (700, MARKED): 0.45,
    (700, WITH_GAPS): 0.57,
    (1000, MARKED): 0.64,
    (1000, WITH_GAPS): 0.72,
    (1000, WRONG): 0.58,
    (1400, MARKED): 0.78,
    (1400, WITH_GAPS): 0.81,
}

measured = functools.cache(row)


@pytest.mark.parametrize(("pool", "policy"), FLOORS)
def test_agents_find_at_least_so_much_of_their_prompts_in_the_cache(pool, policy):
    assert round(measured(pool, policy).hit, 2) >= FLOORS[pool, policy]


@pytest.mark.parametrize(("pool", "hit"), [(1000, 0.31), (1400, 0.44)])
def test_plain_lru_finds_the_part_that_the_floors_are_held_against(pool, hit):
    assert round(measured(pool, LRU).hit, 2) == hit


@pytest.mark.parametrize("pool", POOLS)
def test_sessions_that_never_say_that_they_ended_fare_better_than_under_lru(pool):
    assert measured(pool, NO_RELEASE).hit > measured(pool, LRU).hit


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("policy", [MARKED, WITH_GAPS, NO_RELEASE, WRONG])
def test_who_asks_once_waits_no_longer_than_under_lru(pool, policy):
    stock, ours = measured(pool, LRU), measured(pool, policy)
    assert ours.chat_ttft_ms <= stock.chat_ttft_ms
    assert ours.chat_ttft_p95_ms <= stock.chat_ttft_p95_ms


@pytest.mark.parametrize("pool", POOLS)
def test_without_markers_everything_is_as_under_lru(pool):
    stock, ours = measured(pool, LRU), measured(pool, UNMARKED)
    unlike = {"policy": "", "counts": {}}
    assert ours._replace(**unlike) == stock._replace(**unlike)
