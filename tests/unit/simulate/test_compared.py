"""What is planted in a simulation is found by the comparison, with its cause."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tenuto.compare import compare
from tenuto.simulate import Setup, simulate
from tenuto.trace import Session, Trace, Turn
from tenuto_vllm.embedded.latency import Latency


def traces() -> list[Trace]:
    """Return thirty sessions of eight to eleven turns, with prompts of up to 13,000 tokens."""
    made = []
    for n in range(30):
        sizes = [16 * (k + 1) + n for k in range(8 + n % 4)]
        turns = tuple(
            Turn(((1, size),), 64 * size, 40, k * 9.0 + n, k * 9.0 + n + 1)
            for k, size in enumerate(sizes)
        )
        made.append(Trace(f"t{n}", 64, (Session("main", "main", turns),)))
    return made


BASE = Setup(
    ranks=4,
    tokens_per_rank=100_000,
    placement="session-sticky",
    latency=Latency(uncached_s=1e-4, decode_s=5e-3),
)
PLANTED = {
    "half the blocks": ({"tokens_per_rank": 50_000}, "retention"),
    "sticky off": ({"placement": "round-robin"}, "placement"),
    "a slower prefill": ({"latency": Latency(uncached_s=3e-4, decode_s=5e-3)}, "prefill"),
    "a slower decode": ({"latency": Latency(uncached_s=1e-4, decode_s=2e-2)}, "decode"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_change_of_the_set_up_is_found_with_its_cause(name: str) -> None:
    change, cause = PLANTED[name]
    one, other = simulate(traces(), BASE), simulate(traces(), replace(BASE, **change))
    verdict = compare(one, other, rng=np.random.default_rng(0)).verdict
    assert verdict.is_different
    assert verdict.cause == cause, verdict.words


def test_two_runs_of_one_set_up_do_not_differ() -> None:
    one, other = simulate(traces(), BASE), simulate(traces(), BASE)
    for seed in range(20):
        assert not compare(one, other, rng=np.random.default_rng(seed)).verdict.is_different
