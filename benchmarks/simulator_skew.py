"""Placement under skewed keys: one session with 40 % of the calls, and 64 children at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.simulator_corpora import behind
from tenuto.results import Results
from tenuto.simulate import Setup, outcome_of, simulate
from tenuto.trace import Session, Trace, Turn
from tenuto_vllm.embedded.latency import Latency

PLACEMENTS = ("least-loaded", "agent-hash", "session-sticky", "subagent-keyed", "tenuto")
RANKS = 8
TOKENS_PER_S = 8_000
OTHERS = 48
CHILDREN = 64
HEAVY_SHARE = 0.4
_BLOCK = 64
_SPAWNS = 7
TURNS = 30


def skews() -> list[dict[str, Any]]:
    """Return what each placement makes of each load."""
    loads = {"heavy": list(heavy()), "fan_out": list(fan_out())}
    return [
        {"load": load, "placement": placement, **_said(traces, placement)}
        for load, traces in loads.items()
        for placement in PLACEMENTS
    ]


def _said(traces: list[Trace], placement: str) -> Mapping[str, Any]:
    setup = Setup(
        ranks=RANKS,
        tokens_per_rank=1_000_000,
        placement=placement,
        latency=Latency(uncached_s=1 / TOKENS_PER_S),
    )
    results = simulate(traces, setup)
    outcome = outcome_of(results)
    return {
        "computed_tokens": outcome.computed_tokens,
        "imbalance": outcome.imbalance,
        "least_share": least_share(results),
        "most_moves": outcome.most_moves,
        "ttft_p90_s": waited_s(results),
    }


def waited_s(results: Results) -> float:
    """Return the 90th percentile of the time to first token: of the children, else of the others.

    First turns are left out where all begin at once.
    """
    children = [turn.ttft_s for turn in results.turns if turn.agent == "child"]
    others = [turn.ttft_s for turn in results.turns if turn.trace != "heavy" and turn.turn]
    return float(np.percentile(children or others, 90))


def least_share(results: Results) -> float:
    """Return the calls of the rank with the fewest, to the mean of all: 0 is starved."""
    calls = Counter(turn.rank for turn in results.turns)
    return min(calls[rank] for rank in range(RANKS)) * RANKS / calls.total()


def heavy() -> Iterator[Trace]:
    """Yield one session that makes 40 % of all calls, one after the other, and the others."""
    count = round(HEAVY_SHARE / (1 - HEAVY_SHARE) * OTHERS * TURNS)
    yield Trace("heavy", _BLOCK, (Session("main", "main", _growing(count, 0.0, grows=2)),))
    yield from _others()


def fan_out() -> Iterator[Trace]:
    """Yield a session that spawns children at once, who inherit its context, and the others."""
    root = _growing(12, 5.0)
    at = root[_SPAWNS]
    children = [
        Session(
            f"child-{number}",
            "child",
            tuple(
                behind(at, replace(turn, blocks=_own(turn, number)), _BLOCK)
                for turn in _growing(6, 5.0, blocks=160, at_s=at.end_s)
            ),
            parent="main",
            spawned_after=_SPAWNS,
            joined_before=_SPAWNS + 1,
            fork="inherit",
        )
        for number in range(CHILDREN)
    ]
    yield Trace("fan", _BLOCK, (Session("main", "main", root), *children))
    yield from _others()


def _others() -> Iterator[Trace]:
    for number in range(OTHERS):
        yield Trace(f"other-{number}", _BLOCK, (Session("main", "main", _growing(TURNS, 20.0)),))


def _own(turn: Turn, number: int) -> tuple[tuple[int, int], ...]:
    return tuple((first + number * (1 << 20), count) for first, count in turn.blocks)


def _growing(
    turns: int, gap_s: float, *, blocks: int = 400, grows: int = 16, at_s: float = 0.0
) -> tuple[Turn, ...]:
    return tuple(
        Turn(
            ((1, blocks + grows * n),),
            (blocks + grows * n) * _BLOCK + 1,
            200,
            at_s + n * (gap_s + 1.0),
            at_s + n * (gap_s + 1.0) + 1.0,
            finish_reason="tool_use",
        )
        for n in range(turns)
    )
