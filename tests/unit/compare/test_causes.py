"""One change of a simulated set-up at a time, in pools that evict, is found with its cause."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tenuto.compare import Comparison, compare
from tenuto.results import Results
from tenuto.simulate import Setup, simulate
from tenuto.trace import Session, Trace, Turn
from tenuto_vllm.embedded.latency import Latency

_BLOCK = 64
LATENCY = Latency(uncached_s=5e-5, decode_s=5e-3)
STICKY = Setup(ranks=4, tokens_per_rank=80_000, placement="session-sticky", latency=LATENCY)
OFF = {"placement": "least-loaded"}
ROTATING = {"placement": "round-robin"}
RECORDED = {"service": "recorded"}
SLOW_PREFILL = {"latency": replace(LATENCY, uncached_s=1.5e-4)}
SLOW_DECODE = {"latency": replace(LATENCY, decode_s=2e-2)}


def size(tokens: int) -> dict[str, int]:
    return {"tokens_per_rank": tokens}


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "sticky off": ({}, OFF, "placement"),
    "sticky off in half the pool": (size(40_000), OFF, "placement"),
    "sticky off in a pool without end": (size(10_000_000), OFF, "placement"),
    "sticky off with recorded times": (RECORDED, OFF, "placement"),
    "sticky off in half the pool, recorded": ({**RECORDED, **size(40_000)}, OFF, "placement"),
    "sticky off for rotation": ({}, ROTATING, "placement"),
    "sticky off on two ranks": ({"ranks": 2, **size(160_000)}, ROTATING, "placement"),
    "sticky on": (OFF, {"placement": "session-sticky"}, "placement"),
    "half the blocks": ({}, size(40_000), "retention"),
    "half the blocks, recorded": (RECORDED, size(40_000), "retention"),
    "half of few blocks": (size(60_000), size(30_000), "retention"),
    "half the blocks of rotating ranks": (ROTATING, size(40_000), "retention"),
    "half the blocks of the least loaded": (OFF, size(40_000), "retention"),
    "half the blocks of the least loaded, recorded": (
        {**RECORDED, **OFF},
        size(40_000),
        "retention",
    ),
    "another retention": (size(60_000), {"retention": "slru"}, "retention"),
    "a slower prefill": ({}, SLOW_PREFILL, "prefill"),
    "a slower prefill where calls move": (OFF, SLOW_PREFILL, "prefill"),
    "a slower decode": ({}, SLOW_DECODE, "decode"),
    "a slower decode where calls move": (OFF, SLOW_DECODE, "decode"),
}


@cache
def traces(first_blocks: int, grows_below: int) -> tuple[Trace, ...]:
    """Return sessions of 28 to 32 turns whose prompts grow by a few blocks each."""
    rng = np.random.default_rng(4)
    made: list[Trace] = []
    for n in range(24):
        turns: list[Turn] = []
        at_s, blocks = float(n), first_blocks + n % 5
        for _ in range(28 + n % 5):
            end_s = at_s + 0.5
            turns.append(Turn(((1, blocks),), _BLOCK * blocks, 60, at_s, end_s))
            blocks += int(rng.integers(1, grows_below))
            at_s = end_s + float(rng.lognormal(1.5, 1.0))
        made.append(Trace(f"t{n}", _BLOCK, (Session("main", "main", tuple(turns)),)))
    return tuple(made)


def simulated(first_blocks: int = 60, grows_below: int = 8, **change: Any) -> Results:
    return simulate(traces(first_blocks, grows_below), replace(STICKY, **change))


def compared(one: dict[str, Any], other: dict[str, Any]) -> Comparison:
    sides = simulated(**one), simulated(**{**one, **other})
    return compare(*sides, rng=np.random.default_rng(0))


@pytest.mark.parametrize("name", CASES)
def test_the_cause_of_a_change_is_what_was_changed(name: str) -> None:
    base, change, cause = CASES[name]
    verdict = compared(base, change).verdict
    assert verdict.cause == cause, verdict.words


@pytest.mark.parametrize("tokens", [280_000, 200_000])
def test_placement_is_the_cause_where_all_but_a_few_tokens_are_lost_by_ranks_that_had_them(
    tokens: int,
) -> None:
    base = {"ranks": 2, "first_blocks": 300, "grows_below": 3, **size(tokens)}
    comparison = compared(base, ROTATING)
    whole, placement = (comparison.parts.tokens[n].difference.value for n in (0, 2))
    assert abs(placement) < 0.1 * abs(whole)
    assert comparison.verdict.cause == "placement", comparison.verdict.words
    assert "Turns on another rank than the one before: 0 % to " in comparison.verdict.words


def test_on_the_virtual_clock_losses_in_a_few_traces_are_a_difference() -> None:
    whole = simulated()
    lost = [
        replace(turn, cached_tokens=0) if turn.trace == "t3" and turn.turn > 20 else turn
        for turn in whole.turns
    ]
    comparison = compare(whole, replace(whole, turns=tuple(lost)), rng=np.random.default_rng(0))
    assert comparison.verdict.cause == "retention"
    (found,) = [figure for figure in comparison.parts.tokens if figure.key == "retention"]
    assert (found.difference.low, found.is_different) == (0, True)


def test_on_the_virtual_clock_up_to_a_percent_is_no_difference() -> None:
    whole = simulated()
    later = [replace(turn, end_s=turn.end_s + 1e-6 * n) for n, turn in enumerate(whole.turns)]
    comparison = compare(whole, replace(whole, turns=tuple(later)), rng=np.random.default_rng(0))
    assert not comparison.verdict.is_different
    assert "nothing moved by more than 1% of the base" in comparison.verdict.words
    assert not any("one repeat" in note for note in comparison.notes)


def test_recorded_times_are_said_to_show_nothing_of_the_cache() -> None:
    notes = compared(RECORDED, OFF).notes
    assert any("trust the tokens" in note and "the trace's" in note for note in notes)
    assert not any("modelled" in note for note in notes)


@pytest.mark.parametrize("service", ["modelled", "recorded"])
@pytest.mark.parametrize(("change", "cause"), [(OFF, "placement"), (size(40_000), "retention")])
def test_a_wait_that_moved_the_other_way_follows_from_lost_tokens_where_nothing_is_of_chance(
    service: str, change: dict[str, Any], cause: str
) -> None:
    base, other = simulated(service=service), simulated(service=service, **change)
    waited = [
        replace(
            turn,
            queue_s=(turn.queue_s or 0) + 50,
            first_token_s=turn.first_token_s + 50,
            end_s=turn.end_s + 50,
        )
        for turn in base.turns
    ]
    comparison = compare(replace(base, turns=tuple(waited)), other, rng=np.random.default_rng(0))
    assert comparison.parts.seconds[0].difference.value < 0
    assert comparison.verdict.cause == cause, comparison.verdict.words
    assert comparison.verdict.basis == "tokens"
    assert (comparison.verdict.moved_most == "queueing") == (service == "modelled")
