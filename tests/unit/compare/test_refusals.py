"""What must be equal, and what is let pass."""

from __future__ import annotations

import re
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
        ("route", "chat"),
        ("cache_bust", False),
        ("new_connections", True),
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


def test_turns_that_neither_run_came_to_are_missing_where_the_header_counts_calls() -> None:
    def cut(calls: int) -> Results:
        header = BASE.header.model_copy(update={"calls": dict.fromkeys(BASE.header.traces, calls)})
        return replace(BASE, header=header)

    assert compare(cut(20), cut(20), rng=np.random.default_rng(0)).pairs.left_out == 0
    few = compare(cut(22), cut(20), rng=np.random.default_rng(0))
    assert (few.pairs.total, few.pairs.left_out) == (66, 6)
    with pytest.raises(CannotCompare, match=r"turns: 15 of 75 .* \(15 in repeat 0 of A, 15 in"):
        compare(cut(25), cut(25), rng=np.random.default_rng(0))


def test_how_calls_reach_a_server_is_no_matter_on_the_virtual_clock() -> None:
    header = BASE.header.model_copy(update={"clock": "virtual", "cache_bust": False})
    assert not against(replace(BASE, header=header)).allowed


def test_nothing_measured_is_refused() -> None:
    with pytest.raises(CannotCompare, match="turns"):
        against(replace(BASE, turns=()))
    empty = replace(BASE, turns=())
    with pytest.raises(CannotCompare, match="none measured"):
        compare(empty, empty, rng=np.random.default_rng(0))


@pytest.mark.parametrize("tells_queue", [True, False])
@pytest.mark.parametrize("turns", [1, 2, 3, 4])
def test_few_turns_on_each_side_are_compared_and_called_nothing(
    turns: int, tells_queue: bool
) -> None:
    made = run(Server(tells_queue=tells_queue), 0, traces=1, turns=turns, repeats=1)
    slow = tuple(replace(turn, end_s=turn.end_s + 1e6) for turn in made.turns)
    comparison = compare(made, replace(made, turns=slow), rng=np.random.default_rng(0))
    assert not comparison.verdict.is_different
    words = comparison.verdict.words
    assert words.startswith(
        f"No difference can be claimed: of {turns} paired turns nothing is, the least is 5. "
        "The largest shift is in turns, "
    )
    assert not comparison.verdict.shares


def test_what_moved_on_one_repeat_and_cannot_be_claimed_is_told_with_the_way_out() -> None:
    first = replace(BASE, turns=tuple(turn for turn in BASE.turns if not turn.repeat))
    # One turn alone has moved: by much, and a single event.
    moved = replace(first.turns[-1], cached_tokens=0, end_s=first.turns[-1].end_s + 500)
    other = replace(first, turns=(*first.turns[:-1], moved))
    comparison = compare(first, other, rng=np.random.default_rng(0))
    assert not comparison.verdict.is_different
    words = comparison.verdict.words
    assert words.startswith("No difference can be claimed: one repeat does not show what equal")
    assert "replay with --repeat 3 or more" in words
    assert re.search(r"in uncached, [\d,]+ to [\d,]+ tokens \(\+\d+ % of uncached tokens\)", words)
    assert re.search(r"and in turns, [\d,.]+ to [\d,.]+ s \(\+", words)
    assert not comparison.verdict.shares


def test_a_wait_that_moved_where_turns_did_not_is_told_without_a_share_of_their_change() -> None:
    waiting = replace(Server(), queue_s=0.6, s_per_output=0.065)
    base = run(replace(waiting, queue_s=0.1), 0, turns=40)
    comparison = compare(base, run(waiting, 1, turns=40), rng=np.random.default_rng(0))
    assert comparison.verdict.cause == "queueing"
    assert not comparison.parts.seconds[0].is_different
    assert "of the change in" not in comparison.verdict.words
    assert "The change in turn time is not certain: " in comparison.verdict.words
    assert comparison.verdict.shares == {}


@pytest.mark.parametrize("more", [0, 64, 4000])
def test_a_side_that_was_not_cold_is_noted(more: int) -> None:
    header = BASE.header.model_copy(update={"engine": {"block_size": 64}})
    first = replace(BASE, header=header)
    warm = [
        replace(turn, cached_tokens=turn.prompt_tokens, reachable_tokens=turn.prompt_tokens - more)
        for turn in BASE.turns
    ]
    other = replace(first, turns=tuple(warm))
    comparison = compare(first, other, rng=np.random.default_rng(0))
    noted = [note for note in comparison.notes if "was not cold" in note]
    told = f"B was not cold: {len(warm)} calls found more"
    assert [note.startswith(told) for note in noted] == [True] * (more > 64)


def test_calls_that_overtake_each_other_make_no_side_warm() -> None:
    last = BASE.turns[-1]
    early = replace(last, cached_tokens=last.prompt_tokens, reachable_tokens=0)
    other = replace(BASE, turns=(*BASE.turns[:-1], early))
    assert not any("was not cold" in note for note in against(other).notes)


@pytest.mark.parametrize(
    "change",
    [{"clock": "virtual"}, {"target": "embedded"}, {"engine": {"is_modelled": True}}],
    ids=["virtual", "embedded", "embedded by URL"],
)
def test_times_of_a_model_are_said_to_be_modelled(change: dict[str, Any]) -> None:
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
