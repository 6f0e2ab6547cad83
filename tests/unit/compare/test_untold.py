"""What a server does not tell is left out, and not taken for nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tenuto.compare import Comparison, as_json, compare
from tenuto.report.compared import compared_text
from tenuto.report.page import page
from tenuto.results import Results
from tests.unit.compare.made import Server, run

BASE = run(Server(), 0, traces=9, turns=15)


def without_cached(results: Results) -> Results:
    turns = tuple(replace(turn, cached_tokens=0, cached_known=False) for turn in results.turns)
    return Results(results.header.model_copy(update={"cached_known": False}), turns)


def compared(a: Results, b: Results) -> Comparison:
    return compare(a, b, rng=np.random.default_rng(0))


@pytest.mark.parametrize("sides", [(True, False), (False, True), (False, False)])
def test_cached_tokens_that_are_not_told_are_not_read_as_none(sides: tuple[bool, bool]) -> None:
    made = [BASE if tells else without_cached(BASE) for tells in sides]
    comparison = compared(made[0], made[1])
    assert not comparison.verdict.is_different
    assert comparison.parts.tokens == ()
    assert not any("hit" in figure.key for figure in comparison.figures)
    assert any("--enable-prompt-tokens-details" in note for note in comparison.notes)
    for shown in (compared_text([comparison]), page([comparison], made, command="compare")):
        assert "hit rate, cached / prompt" not in shown
        assert "Uncached tokens by cause" not in shown
    assert "hit rate, cached" not in compared_text([comparison, comparison])
    said = as_json(comparison)
    assert (said["tokens"], said["s_per_uncached_token"]) == ({}, None)


def test_without_cached_tokens_a_slower_decode_is_still_found() -> None:
    slow = run(replace(Server(), s_per_output=0.02), 1, traces=9, turns=15)
    verdict = compared(without_cached(BASE), without_cached(slow)).verdict
    assert verdict.cause == "decode"
    assert set(verdict.shares) == {"prefill", "decode", "queueing"}


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_json_has_no_word_for_what_is_not_finite(value: float) -> None:
    comparison = compared(BASE, BASE)
    odd: Any = replace(comparison.figures[0], floor=value)
    said = as_json(replace(comparison, figures=(odd,)))
    assert said["figures"][odd.key]["floor"] is None
    assert json.loads(json.dumps(said, allow_nan=False))


def test_a_page_has_no_pictures_of_a_cache_that_is_not_told(tmp_path: Path) -> None:
    told, untold = (
        page([compared(one, one)], [one, one], command="compare").count("<svg")
        for one in (BASE, without_cached(BASE))
    )
    assert told - untold == 2
