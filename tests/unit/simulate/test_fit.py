from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tenuto.results import TurnResult
from tenuto.simulate import Setup, fit, simulate
from tenuto.trace import Session, Trace, Turn
from tenuto_vllm.embedded.latency import Latency

MODEL = Latency(overhead_s=0.02, uncached_s=2e-4, context_s=3e-9, decode_s=0.01, crowd_s=0.002)


def traces() -> list[Trace]:
    drawn = random.Random(5)
    made = []
    for name in range(30):
        blocks, turns = 0, []
        for n in range(8):
            blocks += drawn.randint(1, 60)
            start_s = n * 50.0
            turns.append(Turn(((1, blocks),), blocks * 16, drawn.randint(2, 90), start_s, start_s))
        made.append(Trace(f"t{name}", 16, (Session("main", "main", tuple(turns)),)))
    return made


def test_a_model_is_found_again_in_what_it_made():
    setup = Setup(ranks=2, tokens_per_rank=10**6, latency=MODEL, live_sessions=4)
    found = fit(simulate(traces(), setup).turns)
    for name in ("overhead_s", "uncached_s", "context_s", "decode_s"):
        assert getattr(found, name) == pytest.approx(getattr(MODEL, name), rel=0.15), name


def test_nothing_comes_out_negative_from_noise():
    drawn = random.Random(1)
    noisy = [
        TurnResult(
            "t", "s", "a", n, 0, 1000, n, 20, n, n, n + drawn.random(), n + 1 + drawn.random()
        )
        for n in range(100)
    ]
    assert min(vars_of(fit(noisy))) >= 0


def vars_of(model: Latency) -> list[float]:
    return [getattr(model, name) for name in ("overhead_s", "uncached_s", "context_s", "decode_s")]


def test_too_few_turns_are_refused():
    turn = TurnResult("t", "s", "a", 0, 0, 10, 0, 2, 0, 0, 1, 2)
    with pytest.raises(ValueError, match="2 turns without an error"):
        fit([turn, replace(turn, turn=1), replace(turn, turn=2, error="APITimeoutError")])


def test_turns_of_other_runs_were_not_beside_each_other():
    setup = Setup(ranks=2, tokens_per_rank=10**6, latency=MODEL, live_sessions=4)
    turns = simulate(traces(), setup).turns
    alone, twice = fit(turns), fit(turns, turns)
    for name in ("overhead_s", "uncached_s", "context_s", "decode_s", "crowd_s"):
        assert getattr(twice, name) == pytest.approx(getattr(alone, name), rel=1e-6), name
