"""Equal runs are not called different; planted changes are, with their cause."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tenuto.compare import Comparison, compare
from tests.unit.compare.made import Server, run

STEADY = Server()
PLANTED: dict[str, dict[str, float]] = {
    "retention": {"kept": 0.7},
    "placement": {"moves": 0.5},
    "prefill": {"s_per_token": 2e-4},
    "decode": {"s_per_output": 0.015},
    "queueing": {"queue_s": 1.0},
}


def compared(a: Server, b: Server, seed: int, **made: Any) -> Comparison:
    one, other = run(a, 2 * seed, **made), run(b, 2 * seed + 1, **made)
    return compare(one, other, rng=np.random.default_rng(seed))


@pytest.mark.parametrize("moves", [0.02, 0.6], ids=["sticky", "rotating ties"])
@pytest.mark.parametrize(("repeats", "tries"), [(1, 5), (2, 20)])
def test_two_equal_runs_are_not_called_different_in_twenty_tries(
    repeats: int, tries: int, moves: float
) -> None:
    server = replace(STEADY, moves=moves)
    for seed in range(tries):
        comparison = compared(server, server, seed, repeats=repeats, turns=20)
        assert not comparison.verdict.is_different, (seed, comparison.verdict.words)
        assert comparison.verdict.cause is None
        claimed = [figure.key for figure in comparison.figures if figure.is_different]
        assert not claimed, (seed, claimed)


@pytest.mark.parametrize("cause", PLANTED)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_planted_change_is_found_with_its_cause(cause: str, seed: int) -> None:
    comparison = compared(STEADY, replace(STEADY, **PLANTED[cause]), seed)
    assert comparison.verdict.cause == cause, comparison.verdict.words
    assert cause.capitalize() in comparison.verdict.words


@pytest.mark.parametrize("cause", ["retention", "placement", "decode", "queueing"])
def test_the_cause_is_found_where_the_server_does_not_tell_its_queue(cause: str) -> None:
    server = replace(STEADY, tells_queue=False)
    comparison = compared(server, replace(server, **PLANTED[cause]), 0)
    assert comparison.verdict.cause == cause, comparison.verdict.words
    assert comparison.parts.queueing_is_estimated
    assert any("queueing is estimated" in note for note in comparison.notes)


def test_a_slower_prefill_is_told_from_a_wait_without_the_servers_queue() -> None:
    server = replace(STEADY, tells_queue=False, sigma=0.1)
    comparison = compared(server, replace(server, s_per_token=2e-4), 0, turns=60)
    assert comparison.verdict.cause == "prefill", comparison.verdict.words


def test_a_wait_behind_more_work_has_the_work_as_its_cause() -> None:
    worse = replace(STEADY, kept=0.6, queue_s=4.0)
    comparison = compared(STEADY, worse, 0)
    assert comparison.verdict.moved_most == "queueing"
    assert comparison.verdict.cause == "retention"


def test_without_reachable_tokens_the_cause_is_the_cache_and_a_note_says_why() -> None:
    server = replace(STEADY, tells_reachable=False)
    comparison = compared(server, replace(server, kept=0.6), 0)
    assert comparison.verdict.cause == "cache"
    assert any("cannot be split" in note for note in comparison.notes)


def test_an_improvement_has_a_cause_too() -> None:
    comparison = compared(replace(STEADY, moves=0.5), STEADY, 0)
    assert comparison.verdict.cause == "placement"
    hit_rate = next(figure for figure in comparison.figures if figure.key == "hit_rate")
    assert hit_rate.is_different
    assert hit_rate.difference.value > 0


@pytest.mark.parametrize(
    ("made", "resampled"),
    [({"traces": 8}, "traces"), ({"traces": 3}, "turns")],
)
def test_the_output_says_what_was_resampled(made: dict[str, int], resampled: str) -> None:
    assert compared(STEADY, STEADY, 0, turns=8, **made).resampled == resampled


def test_equal_files_differ_in_nothing() -> None:
    one = run(STEADY, 0, turns=10)
    comparison = compare(one, one, rng=np.random.default_rng(0))
    for figure in (*comparison.figures, *comparison.parts.tokens, *comparison.parts.seconds):
        assert figure.difference.value == 0
        assert (figure.difference.low, figure.difference.high) == (0, 0)


def test_two_comparisons_with_one_seed_are_equal() -> None:
    first, second = (compared(STEADY, replace(STEADY, kept=0.8), 3, turns=10) for _ in range(2))
    assert (first.figures, first.parts, first.verdict) == (
        second.figures,
        second.parts,
        second.verdict,
    )
