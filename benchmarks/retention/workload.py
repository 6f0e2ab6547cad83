"""Agents and chat under each policy: `python -m benchmarks.retention.workload`.

It prints JSON, and the table on standard error. Two processes, less than a minute.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple

from benchmarks.retention.agents_and_chat import Client, Outcome, mean_and_p95, run
from benchmarks.retention.slru import SLRUScheduler
from benchmarks.retention.virtual import AsyncScheduler
from tenuto_vllm import TurnScheduler

POOLS, SEEDS = (700, 1000, 1400), (0, 1, 2, 3, 4)

LRU, SLRU, UNMARKED = "vLLM's LRU", "segmented LRU", "no markers"
MARKED, WITH_GAPS = "markers", "markers with gaps"
NO_RELEASE, GAPS_NO_RELEASE, WRONG = "no release", "gaps, no release", "20 % wrong"

POLICIES: dict[str, tuple[type, Client]] = {
    LRU: (AsyncScheduler, Client(marked=False)),
    SLRU: (SLRUScheduler, Client(marked=False)),
    UNMARKED: (TurnScheduler, Client(marked=False)),
    MARKED: (TurnScheduler, Client()),
    WITH_GAPS: (TurnScheduler, Client(gaps=True)),
    NO_RELEASE: (TurnScheduler, Client(release=False)),
    GAPS_NO_RELEASE: (TurnScheduler, Client(gaps=True, release=False)),
    WRONG: (TurnScheduler, Client(wrong=0.2)),
}


class Row(NamedTuple):
    """Means over the seeds of one policy in one pool; times in milliseconds."""

    pool: int
    policy: str
    hit: float
    uncached_tokens: float
    ttft_ms: float
    ttft_p95_ms: float
    chat_ttft_ms: float
    chat_ttft_p95_ms: float
    counts: dict[str, float]


def row(pool: int, policy: str, seeds: Sequence[int] = SEEDS) -> Row:
    """Run a policy in a pool with each seed."""
    scheduler, client = POLICIES[policy]
    outcomes = [run(scheduler, pool, client, seed) for seed in seeds]
    agents = [mean_and_p95(one.ttft_s) for one in outcomes]
    chats = [mean_and_p95(one.chat_ttft_s) for one in outcomes]
    return Row(
        pool,
        policy,
        round(statistics.mean(one.hit for one in outcomes), 4),
        round(statistics.mean(one.uncached_tokens for one in outcomes)),
        *(_ms(one[at] for one in waits) for waits in (agents, chats) for at in (0, 1)),
        _mean_counts(outcomes),
    )


def _ms(seconds: Any) -> float:
    return round(statistics.mean(seconds) * 1000, 1)


def _mean_counts(outcomes: Sequence[Outcome]) -> dict[str, float]:
    names = outcomes[0].counts
    return {name: round(statistics.mean(one.counts[name] for one in outcomes), 1) for name in names}


def main() -> None:
    cases = [(pool, policy) for pool in POOLS for policy in POLICIES]
    with ProcessPoolExecutor(2, get_context("spawn")) as processes:
        rows = list(processes.map(row, *zip(*cases, strict=True)))
    for one in rows:
        print(
            f"{one.pool:5} {one.policy:20} hit {one.hit:.3f} uncached {one.uncached_tokens:7.0f} "
            f"ttft {one.ttft_ms:6.1f} p95 {one.ttft_p95_ms:6.1f} "
            f"chat {one.chat_ttft_ms:5.1f} p95 {one.chat_ttft_p95_ms:6.1f}",
            file=sys.stderr,
        )
    print(json.dumps([one._asdict() for one in rows], indent=1))


if __name__ == "__main__":
    main()
