"""How fast ranks are, and what waits on them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto_vllm.placement import Pending


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1000)), max_size=20))
def test_what_has_begun_and_ended_leaves_nothing(prompts: list[tuple[int, int]]) -> None:
    pending = Pending()
    for rank, tokens in prompts:
        pending.begin(rank, tokens)
    assert sum(pending.counts(4)) == sum(tokens for _, tokens in prompts)
    for rank, tokens in prompts:
        pending.end(rank, tokens)
    assert list(pending.counts(4)) == [0, 0, 0, 0]


def test_a_wait_is_what_is_pending_at_the_speed_that_was_measured() -> None:
    pending = Pending(1_000.0)
    pending.begin(1, 4_000)
    assert (pending.wait_s(0), pending.wait_s(1)) == (0.0, 4.0)
    pending.took(10_000, 5.0)
    assert pending.wait_s(1) == 2.0


def test_the_speed_follows_what_was_measured_last() -> None:
    pending = Pending()
    for _ in range(100):
        pending.took(1_000, 1.0)
    for _ in range(100):
        pending.took(1_000, 0.1)
    assert pending.tokens_per_s == pytest.approx(10_000, rel=0.01)


@pytest.mark.parametrize(("tokens", "seconds"), [(10, 1.0), (5_000, 0.0), (5_000, -1.0)])
def test_what_says_nothing_of_the_speed_is_not_learnt_from(tokens: int, seconds: float) -> None:
    pending = Pending(123.0)
    pending.took(tokens, seconds)
    assert pending.tokens_per_s == 123.0
