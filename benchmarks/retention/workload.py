"""Agents and chat under each policy: `python -m benchmarks.retention.workload`.

It prints JSON, and the table on standard error. Two processes, some two minutes.
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

POOLS, SEEDS = (700, 1000, 1400), (0, 1, 2, 3, 4)

LRU, SLRU, UNMARKED = "vLLM's LRU", "segmented LRU", "no markers"
MARKED, WITH_GAPS = "markers", "markers with gaps"
NO_RELEASE, GAPS_NO_RELEASE, WRONG = "no release", "gaps, no release", "20 % wrong"

CLIENTS = {
    LRU: Client(marked=False),
    SLRU: Client(marked=False),
    UNMARKED: Client(marked=False),
    MARKED: Client(),
    WITH_GAPS: Client(gaps=True),
    NO_RELEASE: Client(release=False),
    GAPS_NO_RELEASE: Client(gaps=True, release=False),
    WRONG: Client(wrong=0.2),
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
    outcomes = [run(_scheduler(policy), pool, CLIENTS[policy], seed) for seed in seeds]
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


def _scheduler(policy: str) -> Any:
    if policy == LRU:
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler

        return AsyncScheduler
    if policy == SLRU:
        from benchmarks.retention.slru import SLRUScheduler

        return SLRUScheduler
    from tenuto_vllm import TurnScheduler

    return TurnScheduler


def _ms(seconds: Any) -> float:
    return round(statistics.mean(seconds) * 1000, 1)


def _mean_counts(outcomes: Sequence[Outcome]) -> dict[str, float]:
    names = outcomes[0].counts
    return {name: round(statistics.mean(one.counts[name] for one in outcomes), 1) for name in names}


def main() -> None:
    cases = [(pool, policy) for pool in POOLS for policy in CLIENTS]
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
