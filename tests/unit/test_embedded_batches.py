"""The order of eviction, against sorting all that is held anew at every eviction."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto_vllm.embedded.batches import Batch, batches
from tenuto_vllm.retention import RETENTIONS, Expectation, Held, Retention, Standing, Waits

TOTAL = 20
BATCHES = st.builds(
    Held,
    session=st.just("s"),
    released_s=st.just(0.0),
    was_hit=st.booleans(),
    wait=st.sampled_from(["tool", "user", "unknown"]),
    is_final=st.booleans(),
    is_active=st.booleans(),
    expected=st.builds(
        Waits().expect,
        st.just("s"),
        st.sampled_from(["tool", "user"]),
        st.one_of(st.none(), st.floats(0, 400)),
    ),
    born_s=st.floats(0, 9),
    next_s=st.one_of(st.just(float("inf")), st.floats(0, 900)),
)
ROUNDS = st.lists(
    st.tuples(
        st.lists(st.tuples(BATCHES, st.integers(1, 6)), max_size=3),
        st.none() | st.integers(0, 99),
        st.none() | st.integers(0, 99),
        st.sampled_from([0.0, 1.0, 9.0, 18.0, 120.0]),
        st.integers(1, 5),
    ),
    min_size=4,
    max_size=12,
)


def sorted_anew(held: dict[int, Batch], retention: Retention, now_s: float) -> list[int]:
    if retention.protected_share is None:
        standing = retention.standing or (lambda _one, _now_s: Standing(()))
        return sorted(held, key=lambda number: (standing(held[number].held, now_s).key, number))
    over = sum(one.live for one in held.values() if one.held.was_hit)
    over -= retention.protected_share * TOTAL
    first, last = [], []
    for number, one in sorted(held.items()):
        (last if one.held.was_hit and over <= 0 else first).append(number)
        over -= one.live if one.held.was_hit and over > 0 else 0
    return first + last


@given(st.sampled_from(sorted(RETENTIONS)), ROUNDS)
@settings(max_examples=500, deadline=None)
def test_batches_go_as_if_all_were_sorted_at_every_eviction(name: str, rounds: list) -> None:
    kept, now_s = batches(RETENTIONS[name], TOTAL), 0.0
    for added, superseded, touched, wait_s, count in rounds:
        for held, blocks in added:
            kept.add(Batch(np.arange(blocks), held._replace(released_s=now_s), blocks))
        if superseded is not None and kept.of:
            number = list(kept.of)[superseded % len(kept.of)]
            kept.change(number, kept.of[number].held._replace(is_superseded=True))
        if touched is not None and kept.of:
            kept.shrink(list(kept.of)[touched % len(kept.of)], 1)
        now_s, left = now_s + wait_s, count
        expected = sorted_anew(dict(kept.of), RETENTIONS[name], now_s)
        for number, other in zip(kept.order(now_s), expected, strict=False):
            assert number == other
            gone = min(left, kept.of[number].live)
            kept.shrink(number, gone)
            left -= gone
            if not left:
                break
        assert not left or not kept.of


def test_a_batch_whose_time_has_passed_gets_another_place() -> None:
    kept = batches(RETENTIONS["hinted"], TOTAL)
    soon, later = (
        kept.add(Batch(np.arange(1), Held("s", 0.0, expected=Expectation(wait_s, 600.0)), 1))
        for wait_s in (2.0, 60.0)
    )
    assert next(kept.order(1.0)) == later
    # It did not come, and is expected the later the longer it is away.
    assert next(kept.order(50.0)) == soon


@pytest.mark.parametrize("name", ["drop-final", "expected-return", "belady"])
def test_an_eviction_does_not_look_at_all_that_is_held(name: str) -> None:
    looked = 0
    standing = RETENTIONS[name].standing
    assert standing is not None

    def counted(held: Held, now_s: float) -> Standing:
        nonlocal looked
        looked += 1
        return standing(held, now_s)

    kept = batches(RETENTIONS[name]._replace(standing=counted), 1000)
    for number in range(1000):
        kept.add(Batch(np.arange(1), Held(f"s{number}", 0.0, wait="user"), 1))
    for _ in range(500):
        kept.shrink(next(kept.order(1.0)), 1)
    assert looked == 1000


def test_what_never_evicts_does_not_remember_what_has_gone() -> None:
    kept = batches(RETENTIONS["hinted"], 1000)
    for number in range(5000):
        held = Held(f"s{number}", 0.0)
        added = kept.add(Batch(np.arange(1), held, 1))
        kept.change(added, held._replace(is_superseded=True))
        kept.shrink(added, 1)
    assert len(kept._until) < 200  # type: ignore[attr-defined]
