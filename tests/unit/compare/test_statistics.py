"""Parts add up, resamples are what they say, and definitions are the public ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.compare import compare
from tenuto.compare.pairs import pair
from tenuto.compare.parts import second_parts, token_parts
from tenuto.compare.resample import Draws, draw, interval, percentiles, sums
from tenuto.results import Results, TurnResult
from tests.unit.compare.made import HEADER, Server, run

TURN = TurnResult("t", "s", "main", 0, 0, 1_000, 400, 11, 0.0, 1.0, 2.0, 4.0)
COUNTS = st.integers(0, 5_000)


@given(st.lists(st.tuples(COUNTS, COUNTS, COUNTS, COUNTS), min_size=1, max_size=8), COUNTS)
def test_causes_are_not_negative_and_add_up_to_uncached_tokens(
    rows: list[tuple[int, int, int, int]], block_size: int
) -> None:
    turns = [
        replace(
            TURN,
            turn=number,
            prompt_tokens=prompt,
            cached_tokens=min(cached, prompt),
            reachable_tokens=min(max(reachable, on_rank), prompt),
            rank_reachable_tokens=min(on_rank, prompt),
        )
        for number, (prompt, cached, reachable, on_rank) in enumerate(rows)
    ]
    side = pair(turns, turns).a
    parts = token_parts(side, block_size=block_size)
    causes = [parts.unavoidable, parts.placement, parts.retention]
    assert all(cause is not None and (cause >= 0).all() for cause in causes)
    assert np.allclose(sum(cause for cause in causes if cause is not None), side.uncached_tokens)


def test_a_shortfall_of_one_block_is_rounding_and_of_two_is_retention() -> None:
    turns = [
        replace(
            TURN,
            turn=number,
            cached_tokens=960 - short,
            reachable_tokens=960,
            rank_reachable_tokens=960,
        )
        for number, short in enumerate((0, 16, 32))
    ]
    retention = token_parts(pair(turns, turns).a, block_size=16).retention
    assert retention is not None
    assert retention.tolist() == [[0, 0, 32]]


@pytest.mark.parametrize("tells_queue", [True, False])
def test_seconds_are_not_negative_and_add_up_to_the_turn(tells_queue: bool) -> None:
    server = Server(tells_queue=tells_queue)
    pairs = pair(run(server, 0, turns=10).turns, run(server, 1, turns=10).turns)
    *made, is_estimated = second_parts(pairs)
    assert is_estimated is not tells_queue
    for parts, side in zip(made, (pairs.a, pairs.b), strict=True):
        assert min(parts.queueing.min(), parts.prefill.min(), parts.decode.min()) >= 0
        assert np.allclose(parts.queueing + parts.prefill + parts.decode, side.turn_s)


VALUES = st.lists(st.floats(0, 1e6), min_size=2, max_size=30)


@given(VALUES, st.integers(1, 3), st.integers(0, 99))
def test_resampled_percentiles_are_values_and_do_not_fall(
    values: list[float], repeats: int, seed: int
) -> None:
    label = np.arange(len(values)) // 2
    draws = draw(np.random.default_rng(seed), label, (repeats, repeats), 50)
    found = percentiles(np.tile(values, (repeats, 1)), draws, 0, (0.5, 0.9))
    assert set(found.ravel().tolist()) <= set(values)
    assert (found[:, 0] <= found[:, 1]).all()


@given(VALUES)
def test_a_percentile_counts_a_turn_as_often_as_its_cluster_was_drawn(values: list[float]) -> None:
    times = np.arange(1, len(values) + 1, dtype=np.int32)
    one = np.ones((1, 1), dtype=np.int64)
    draws = Draws(np.arange(len(values)), times[None, :], np.zeros(1, dtype=np.int64), (one, one))
    found = percentiles(np.array([values]), draws, 0, (0.5,))
    naive = np.quantile(np.repeat(values, times), 0.5, method="inverted_cdf")
    assert found[0, 0] == naive


@given(VALUES, st.integers(0, 99))
def test_resampled_sums_are_those_of_the_drawn_clusters(values: list[float], seed: int) -> None:
    label = np.arange(len(values)) // 2
    draws = draw(np.random.default_rng(seed), label, (1, 1), 20)
    found = sums(np.array(values)[None, None, :], draws, 1)[:, 0]
    naive = [float((np.array(values) * row[label]).sum()) for row in draws.clusters]
    assert np.allclose(found, naive)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=50), st.floats(-1e3, 1e3))
def test_an_interval_holds_its_value(drawn: list[float], value: float) -> None:
    low, high = interval(np.array(drawn), value)
    assert low <= value <= high


def test_equally_many_repeats_are_drawn_together() -> None:
    draws = draw(np.random.default_rng(0), np.arange(4), (3, 3))
    assert (draws.repeats[0] == draws.repeats[1]).all()


def test_an_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        values = rng.normal(size=(1, 60))
        draws = draw(rng, np.arange(60), (1, 1), 300)
        point = float(np.median(values))
        low, high = interval(percentiles(values, draws, 0, (0.5,))[:, 0], point)
        covered += low <= 0 <= high
    assert 180 <= covered <= 199


def test_definitions_are_the_public_ones() -> None:
    turns = tuple(
        replace(
            TURN,
            turn=number,
            start_s=number * 10.0,
            first_token_s=number * 10.0 + 1,
            end_s=number * 10.0 + 3,
        )
        for number in range(10)
    )
    one = Results(HEADER.model_copy(update={"traces": {"t": "0"}}), turns)
    made = compare(one, one, rng=np.random.default_rng(0), gpus=4, gpu_usd_per_hour=3.0)
    figure = {figure.key: figure.a.value for figure in made.figures}
    per_gpu_s = 10 * (1_000 + 11) / 93 / 4
    assert figure["ttft_p90_s"] == pytest.approx(1.0)
    assert figure["itl_p90_s"] == pytest.approx(2 / 10)
    assert figure["intvty_p90"] == pytest.approx(10 / 2)
    assert figure["e2e_intvty_p90"] == pytest.approx(11 / 3)
    assert figure["run_s"] == pytest.approx(93)
    assert figure["tokens_per_gpu_s"] == pytest.approx(per_gpu_s)
    assert figure["usd_per_mtok_total"] == pytest.approx(3.0 / (3_600 * per_gpu_s / 1e6))
    spent = 3.0 * 4 * 93 / 3_600
    assert figure["usd_per_mtok_output"] == pytest.approx(spent / 110 * 1e6)
    assert figure["hit_rate"] == pytest.approx(0.4)


def test_a_turn_lost_cache_when_more_than_a_block_of_what_some_rank_had_was_not_found() -> None:
    lost = [(0, 0), (16, 0), (32, 0), (0, 16), (0, 32)]  # to placement, to retention
    turns = [
        replace(
            TURN,
            turn=number,
            cached_tokens=800 - placement - retention,
            reachable_tokens=800,
            rank_reachable_tokens=800 - placement,
        )
        for number, (placement, retention) in enumerate(lost)
    ]
    whole = [replace(turn, cached_tokens=800, rank_reachable_tokens=800) for turn in turns]
    header = HEADER.model_copy(update={"engine": {"block_size": 16}})
    made = compare(
        Results(header, tuple(turns)), Results(header, tuple(whole)), rng=np.random.default_rng(0)
    )
    (short,) = [figure for figure in made.figures if figure.key == "turns_short"]
    assert (short.a.value, short.b.value) == (2 / 5, 0)
