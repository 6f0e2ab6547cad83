"""What must be equal, and what is let pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tenuto.compare import CannotCompare, Comparison, compare
from tenuto.results import Results
from tests.unit.compare.made import Server, run

BASE = run(Server(), 0, traces=3, turns=20)


def against(other: Results, **options: Any) -> Comparison:
    return compare(BASE, other, rng=np.random.default_rng(0), **options)


def changed(count: int, **fields: Any) -> Results:
    turns = [replace(turn, **fields) for turn in BASE.turns[:count]]
    return replace(BASE, turns=(*turns, *BASE.turns[count:]))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seed", 7),
        ("identity", "tenuto"),
        ("mode", "asap"),
        ("time_scale", 0.5),
        ("gap_cap_s", 60.0),
        ("live_sessions", 2),
        ("concurrency", 8),
        ("max_output_tokens", 16),
        ("traces", {"trace-0": "0" * 32, "trace-1": "f" * 32, "trace-9": "0" * 32}),
    ],
)
def test_a_header_that_differs_is_refused_by_name_and_let_pass_when_allowed(
    field: str, value: Any
) -> None:
    header = BASE.header.model_copy(update={field: value})
    other = replace(BASE, header=header)
    with pytest.raises(CannotCompare) as refused:
        against(other)
    assert [line.split(":")[0] for line in refused.value.reasons] == [field]
    assert against(other, allow=[field]).allowed == refused.value.reasons


def test_the_first_three_traces_are_named() -> None:
    digests = {**dict.fromkeys(BASE.header.traces, "f" * 32), "more": "0" * 32}
    other = replace(BASE, header=BASE.header.model_copy(update={"traces": digests}))
    with pytest.raises(CannotCompare, match=r"4 of 4, first: trace-0 .*trace-1 .*trace-2") as told:
        against(other)
    assert "more" not in str(told.value)


@pytest.mark.parametrize("field", ["output_tokens", "prompt_tokens"])
def test_turns_of_another_length_are_refused_by_name(field: str) -> None:
    other = changed(4, **{field: 99_999})
    with pytest.raises(CannotCompare) as refused:
        against(other)
    (line,) = refused.value.reasons
    assert line.startswith(f"{field}: 4 of 60 turns, first: trace-0/main turn ")
    assert line.count("99999 in B") == 3
    assert against(other, allow=[field]).allowed == (line,)


def test_all_differences_of_the_headers_are_told_at_once() -> None:
    header = BASE.header.model_copy(update={"seed": 1, "mode": "fixed"})
    with pytest.raises(CannotCompare) as refused:
        against(replace(BASE, header=header))
    assert len(refused.value.reasons) == 2


def test_failed_turns_are_left_out_and_counted() -> None:
    comparison = against(changed(5, error="APITimeoutError"))
    assert (len(comparison.pairs.keys), comparison.pairs.left_out) == (55, 5)
    assert any("5 of 60 turns are left out" in note for note in comparison.notes)


def test_more_than_a_tenth_missing_is_refused_with_the_repeat() -> None:
    with pytest.raises(CannotCompare, match=r"turns: 7 of 60 .* \(7 in repeat 0 of B\)"):
        against(changed(7, error="APITimeoutError"))


def test_nothing_measured_is_refused() -> None:
    with pytest.raises(CannotCompare, match="turns"):
        against(replace(BASE, turns=()))
    empty = replace(BASE, turns=())
    with pytest.raises(CannotCompare, match="none measured"):
        compare(empty, empty, rng=np.random.default_rng(0))


def test_one_turn_on_each_side_is_compared_and_called_nothing() -> None:
    one = replace(BASE, turns=BASE.turns[:1])
    slow = replace(BASE.turns[0], end_s=BASE.turns[0].end_s + 1e6)
    comparison = compare(one, replace(one, turns=(slow,)), rng=np.random.default_rng(0))
    assert not comparison.verdict.is_different


@pytest.mark.parametrize("change", [{"clock": "virtual"}, {"target": "embedded"}])
def test_times_of_a_model_are_said_to_be_modelled(change: dict[str, str]) -> None:
    header = BASE.header.model_copy(update=change)
    notes = against(replace(BASE, header=header)).notes
    assert any("modelled" in note for note in notes)
    assert not any("modelled" in note for note in against(BASE).notes)


def test_figures_per_gpu_and_cost_need_their_denominators() -> None:
    bare = replace(BASE, header=BASE.header.model_copy(update={"gpus": None}))
    found = compare(bare, bare, rng=np.random.default_rng(0), gpu_usd_per_hour=2.0)
    keys = {figure.key for figure in found.figures}
    assert "tokens_per_s" in keys
    assert not any("usd" in key or "gpu" in key for key in keys)
    assert any("--gpus" in note for note in found.notes)
    assert any("--gpu-usd-per-hour" in note for note in against(BASE).notes)
