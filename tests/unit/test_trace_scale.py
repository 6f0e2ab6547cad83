from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.replay import prompt_text
from tenuto.trace import Session, Trace, Turn, scale
from tenuto.trace.runs import runs_of

BLOCK_SIZE = 64


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    ids = st.lists(st.integers(0, 5), max_size=8).map(tuple)
    prompts = draw(st.lists(st.tuples(ids, st.integers(0, BLOCK_SIZE - 1)), max_size=6))
    turns = tuple(
        Turn(
            runs_of(blocks),
            len(blocks) * BLOCK_SIZE + tail,
            draw(st.integers(0, 900)),
            at,
            at + 0.5,
        )
        for at, (blocks, tail) in enumerate(prompts)
    )
    return Trace("t", BLOCK_SIZE, (Session("main", "main", turns),))


@given(traces(), st.sampled_from([1, 2, 4, 8, 16, 32, 64]))
def test_scaling_keeps_the_share_of_text_that_two_prompts_have_in_common(
    trace: Trace, factor: int
) -> None:
    scaled = scale(trace, factor)
    for before, after in zip(pairs(trace), pairs(scaled), strict=True):
        assert common_blocks(*before, trace) == common_blocks(*after, scaled)


def pairs(trace: Trace) -> list[tuple[Turn, Turn]]:
    return list(itertools.combinations(trace.sessions[0].turns, 2))


def common_length(pair: Sequence[Sequence[object]]) -> int:
    shorter = min(map(len, pair))
    return next((at for at in range(shorter) if pair[0][at] != pair[1][at]), shorter)


def common_blocks(left: Turn, right: Turn, trace: Trace) -> int:
    texts = [
        prompt_text(turn.blocks, turn.input_tokens, trace.block_size) for turn in (left, right)
    ]
    whole = min(left.block_count, right.block_count)
    return min(whole, common_length(texts) // trace.block_size)


@given(traces(), st.sampled_from([1, 2, 4, 8, 16, 32, 64]))
def test_a_scaled_prompt_is_its_blocks_and_less_than_one_block_more(
    trace: Trace, factor: int
) -> None:
    scaled = scale(trace, factor)
    for before, after in zip(trace.sessions[0].turns, scaled.sessions[0].turns, strict=True):
        tail = after.input_tokens - after.block_count * scaled.block_size
        assert 0 <= tail < scaled.block_size
        assert (after.output_tokens == 0) == (before.output_tokens == 0)
        assert after.output_tokens <= before.output_tokens
        assert (after.start_s, after.end_s) == (before.start_s, before.end_s)


@given(traces())
def test_scaling_by_one_changes_nothing(trace: Trace) -> None:
    assert scale(trace, 1) == trace


@pytest.mark.parametrize("factor", [0, -8, 3, 128])
def test_a_factor_that_does_not_divide_the_block_size_is_refused_with_those_that_do(
    factor: int,
) -> None:
    with pytest.raises(ValueError, match=r"use one of \[1, 2, 4, 8, 16, 32, 64\]"):
        scale(Trace("t", 64, ()), factor)


@pytest.mark.parametrize(
    ("sessions", "message"),
    [
        ((Session("a", "x", ()), Session("a", "y", ())), "another session has its label"),
        ((Session("a", "x", (), parent="b"),), "parent b does not stand before it"),
        (
            (Session("a", "x", ()), Session("b", "y", (), parent="a", spawned_after=0)),
            "spawned after turn 0, but its parent has 0 turns",
        ),
        (
            (
                Session("a", "x", (Turn((), 0, 0, 0, 0), Turn((), 0, 0, 1, 1))),
                Session("b", "y", (), parent="a", spawned_after=1, joined_before=1),
            ),
            "joined before turn 1, spawned after turn 1 of 2",
        ),
    ],
)
def test_a_trace_whose_sessions_cannot_have_happened_is_refused(
    sessions: tuple[Session, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Trace("t", 64, sessions)


def test_times_and_counted_tokens_are_scaled_and_what_only_the_source_says_is_dropped() -> None:
    turn = Turn(((3, 2),), 130, 9, 2.0, 4.0, first_token_s=3.0, cached_tokens=64, extra={"t": 2.0})
    trace = Trace("t", 64, (Session("main", "main", (turn,)),), extra={"totals": 1})
    scaled = scale(trace, 8, times=0.5)
    assert scaled.extra is None
    assert scaled.sessions[0].turns == (Turn(((3, 2),), 16, 1, 1.0, 2.0, 1.5, cached_tokens=8),)


@pytest.mark.parametrize("times", [0.0, -1.0, float("nan")])
def test_times_are_not_turned_round(times: float) -> None:
    with pytest.raises(ValueError, match="must be more than 0"):
        scale(Trace("t", 64, ()), 1, times=times)
