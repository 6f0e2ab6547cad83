from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.simulate import PLACEMENT_NAMES, RETENTION_NAMES, Setup, outcome_of, simulate
from tenuto.simulate.grid import simulate_all
from tenuto.trace import Session, Trace, Turn
from tenuto_vllm.embedded.latency import Latency


def growing(name: str, turns: int, *, step: int = 4, gap_s: float = 10.0) -> Trace:
    """A session whose prompt grows by `step` blocks of 16 tokens a turn."""
    made = tuple(
        Turn(
            ((1, step * (n + 1)),),
            16 * step * (n + 1) + 3,
            5,
            n * (gap_s + 2.0),
            n * (gap_s + 2.0) + 2.0,
            finish_reason="tool_use",
        )
        for n in range(turns)
    )
    return Trace(name, 16, (Session("main", "main", made),))


MANY = [growing(f"t{n}", 6 + n % 3) for n in range(12)]
ROOMY = Setup(ranks=3, tokens_per_rank=100_000, latency=Latency(uncached_s=1e-4, decode_s=1e-3))


@pytest.mark.parametrize("placement", PLACEMENT_NAMES)
@pytest.mark.parametrize("retention", RETENTION_NAMES)
def test_every_set_up_makes_each_call_once_and_in_order(placement, retention):
    setup = replace(ROOMY, placement=placement, retention=retention, tokens_per_rank=1000)
    turns = simulate(MANY, setup).turns
    assert sorted((t.trace, t.turn) for t in turns) == sorted(
        (trace.id, n) for trace in MANY for n in range(trace.requests)
    )
    last: dict[str, float] = {}
    for turn in sorted(turns, key=lambda turn: turn.start_s):
        assert turn.error is None
        assert turn.start_s >= last.get(turn.trace, 0.0)
        assert turn.due_s == turn.start_s <= turn.first_token_s <= turn.end_s
        last[turn.trace] = turn.end_s


def test_a_sticky_session_in_a_large_cache_finds_all_that_there_is():
    outcome = outcome_of(simulate(MANY, replace(ROOMY, placement="session-sticky")))
    assert outcome.hit == outcome.theoretical_hit > 0.7
    assert (outcome.lost_to_placement, outcome.lost_to_retention) == (0, 0)


def test_what_is_lost_is_put_down_to_placement_or_to_retention():
    rotating = outcome_of(simulate(MANY, replace(ROOMY, placement="round-robin")))
    assert rotating.lost_to_placement > 0
    assert rotating.lost_to_retention == 0
    tight = outcome_of(simulate(MANY, replace(ROOMY, tokens_per_rank=1200)))
    assert tight.lost_to_retention > 0
    assert tight.lost_to_placement == 0
    assert tight.hit < rotating.theoretical_hit == tight.theoretical_hit


def test_the_same_set_up_gives_the_same_results():
    setup = replace(ROOMY, retention="hinted", tokens_per_rank=1500, seed=3)
    assert simulate(MANY, setup) == simulate(MANY, setup)


def test_a_prompt_that_fits_no_rank_is_an_error_and_the_session_goes_on():
    turns = simulate([growing("long", 8)], replace(ROOMY, tokens_per_rank=16 * 20)).turns
    assert [turn.error for turn in turns] == [None] * 4 + ["PromptTooLong"] * 4


@given(st.integers(1, 4))
@settings(max_examples=4, deadline=None)
def test_no_more_calls_are_in_flight_than_allowed(limit: int):
    turns = simulate(MANY, replace(ROOMY, concurrency=limit, mode="asap")).turns
    for turn in turns:
        beside = [t for t in turns if t.start_s <= turn.start_s < t.end_s]
        assert len(beside) <= limit


def test_live_sessions_bound_how_many_traces_run_at_once():
    turns = simulate(MANY, replace(ROOMY, live_sessions=2)).turns
    spans = {
        trace.id: (
            min(t.start_s for t in turns if t.trace == trace.id),
            max(t.end_s for t in turns if t.trace == trace.id),
        )
        for trace in MANY
    }
    for start_s, _ in spans.values():
        assert sum(begin <= start_s < end for begin, end in spans.values()) <= 2


def test_many_set_ups_over_processes_give_what_each_gives_by_itself():
    setups = [
        replace(ROOMY, placement=name, tokens_per_rank=tokens)
        for name in ("least-loaded", "session-sticky")
        for tokens in (1000, 2000)
    ]
    alone = [outcome_of(simulate(MANY, setup)) for setup in setups]
    assert list(simulate_all(MANY, setups, jobs=2)) == alone


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"ranks": 0}, "ranks is 0"),
        ({"placement": "best"}, "no placement 'best'; there are least-loaded"),
        ({"retention": "best"}, "no retention 'best'; there are lru"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"hint_sigma": float("nan")}, "hint_sigma is nan"),
        ({"hint_sigma": -1.0}, "hint_sigma is -1"),
        ({"hint_sigma": 1000.0}, "hint_sigma is 1000"),
        ({"gap_cap_s": float("inf")}, "gap_cap_s is inf"),
        ({"time_scale": float("nan")}, "time_scale is nan"),
    ],
)
def test_set_ups_that_cannot_be_run_are_refused(wrong, says):
    with pytest.raises(ValueError, match=says):
        Setup(**wrong)


def test_traces_of_two_block_sizes_are_refused():
    with pytest.raises(ValueError, match=r"blocks of \[8, 16\] tokens"):
        simulate([growing("a", 1), replace(growing("b", 1), block_size=8)], ROOMY)


def test_traces_with_one_id_are_refused_rather_than_merged():
    with pytest.raises(ValueError, match="two traces have one id"):
        simulate([growing("a", 2), growing("a", 2)], ROOMY)


def test_any_number_of_calls_that_fit_no_rank_may_wait_for_their_turn():
    long = [growing(f"t{n}", 1, step=100) for n in range(1500)]
    setup = replace(ROOMY, ranks=1, tokens_per_rank=640, concurrency=1, mode="asap")
    turns = simulate([growing("fits", 1), *long], setup).turns
    assert [turn.error for turn in turns].count("PromptTooLong") == 1500


def test_the_header_says_how_many_calls_each_trace_has():
    assert simulate(MANY[:2], ROOMY).header.calls == {"t0": 6, "t1": 7}
