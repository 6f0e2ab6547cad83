"""Costs from measured prefills."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto_vllm.placement.split import Costs
from tenuto_vllm.placement.split.fit import fit

TRUE = Costs()
SIZES = [(64, 0), (512, 0), (512, 30_000), (4_000, 0), (4_000, 90_000), (30_000, 0), (140_000, 0)]

amounts = st.tuples(
    st.floats(0.001, 1.0), st.floats(1e-6, 1e-3), st.one_of(st.just(0.0), st.floats(1e-11, 1e-8))
)
sizes = st.lists(
    st.tuples(st.integers(1, 200_000), st.integers(0, 200_000)), min_size=2, max_size=20
)


def measured(costs, pairs, off=lambda: 1.0):
    return [(new, cached, costs.prefill(new, cached) * off()) for new, cached in pairs]


@given(amounts, sizes)
def test_known_costs_are_found_again(known, more):
    costs = TRUE._replace(**dict(zip(Costs._fields[:3], known, strict=True)))
    found = costs._replace(
        **dict(zip(Costs._fields[:3], fit(measured(costs, SIZES + more)), strict=True))
    )
    for new, cached in SIZES + more:
        assert found.prefill(new, cached) == pytest.approx(costs.prefill(new, cached), rel=1e-6)
    assert found[:3] == pytest.approx(known, rel=1e-3, abs=1e-13)


@given(st.integers(0, 1 << 32))
def test_a_tenth_of_noise_moves_what_is_foretold_by_no_more(seed):
    draw = random.Random(seed)
    points = measured(TRUE, SIZES * 20, lambda: draw.uniform(0.9, 1.1))
    found = TRUE._replace(**dict(zip(Costs._fields[:3], fit(points), strict=True)))
    for new, cached in SIZES:
        assert found.prefill(new, cached) == pytest.approx(TRUE.prefill(new, cached), rel=0.1)


@given(
    st.lists(
        st.tuples(st.integers(1, 10**6), st.integers(0, 10**6), st.floats(1e-4, 1e3)),
        min_size=3,
        max_size=12,
    )
)
def test_no_cost_is_below_zero_whatever_was_measured(points):
    try:
        found = fit(points)
    except ValueError:
        return
    assert min(found) >= 0


def test_what_would_be_below_zero_is_fitted_without():
    points = [(100, 0, 0.1), (200, 0, 0.19), (400, 0, 0.37), (800, 0, 0.6)]
    base, per_token, per_pair = fit(points)
    assert per_pair == 0
    assert base > 0
    assert per_token > 0


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ([], "three points"),
        ([(1, 0, 1.0), (2, 0, 1.0), (2, 0, 2.0)], "three points"),
        ([(5, 0, 1.0), (5, 10, 1.1), (5, 20, 1.2)], "alike"),
        ([(0, 0, 1.0)], "above 0"),
        ([(1, -1, 1.0)], "above 0"),
        ([(1, 0, 0.0)], "above 0"),
        ([(1, 0, float("nan"))], "above 0"),
    ],
)
def test_too_little_is_said_to_be_too_little(points, said):
    with pytest.raises(ValueError, match=said):
        fit(points)
