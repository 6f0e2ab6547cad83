from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.report import Row, summarise, table
from tenuto.results import TurnResult

TURN = TurnResult("w", "s", "planner", 0, 0, 100, 40, 8, 1.0, 1.0, 1.25, 2.0)


def turns(*, ranks: list[int | None], session: str = "s") -> list[TurnResult]:
    return [
        replace(TURN, session=session, turn=index, rank=rank) for index, rank in enumerate(ranks)
    ]


def test_tokens_and_requests_are_added_up() -> None:
    total = summarise(turns(ranks=[0, 1, 1]), ranks=3)
    assert total.requests == 3
    assert total.requests_per_rank == (1, 2, 0)
    assert (total.prompt_tokens, total.cached_tokens, total.uncached_tokens) == (300, 120, 180)
    assert total.cached_share == pytest.approx(0.4)


def test_a_session_is_on_one_rank_when_all_of_its_turns_were() -> None:
    results = [
        *turns(session="a", ranks=[0, 0]),
        *turns(session="b", ranks=[0, 1]),
        *turns(session="c", ranks=[None, None]),
        *(replace(turn, trace="other") for turn in turns(session="b", ranks=[1, 1])),
    ]
    total = summarise(results, ranks=2)
    assert (total.sessions, total.sessions_on_one_rank) == (4, 2)


def test_each_repeat_of_a_session_has_a_rank_of_its_own() -> None:
    results = [
        replace(turn, repeat=rank)
        for rank in (0, 1)
        for turn in turns(session="a", ranks=[rank, rank])
    ]
    total = summarise(results, ranks=2)
    assert (total.sessions, total.sessions_on_one_rank) == (2, 2)


def test_times_are_interpolated_percentiles_and_the_span_of_all_turns() -> None:
    results = [
        replace(TURN, start_s=start_s, first_token_s=start_s + ttft_s, end_s=start_s + 1)
        for ttft_s, start_s in [(0.4, 3.0), (0.1, 0.5), (0.3, 2.0), (0.2, 1.0)]
    ]
    total = summarise(results, ranks=1)
    assert total.ttft_p50_s == pytest.approx(0.25)
    assert total.ttft_p90_s == pytest.approx(0.37)
    assert total.wall_s == pytest.approx(3.5)


def test_nothing_adds_up_to_zeros() -> None:
    total = summarise([], ranks=2)
    assert (total.requests, total.requests_per_rank, total.sessions) == (0, (0, 0), 0)
    assert (total.cached_share, total.ttft_p90_s, total.wall_s) == (0.0, 0.0, 0.0)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20))
def test_a_percentile_lies_between_the_least_and_the_most(ttfts: list[float]) -> None:
    total = summarise(
        [replace(TURN, start_s=0.0, first_token_s=ttft_s) for ttft_s in ttfts], ranks=1
    )
    assert min(ttfts) <= total.ttft_p50_s <= total.ttft_p90_s + 1e-9
    assert total.ttft_p90_s <= max(ttfts) + 1e-9


ROWS = [
    Row("programs", "without tenuto", summarise(turns(ranks=[0, 1]), ranks=2)),
    Row("programs", "with tenuto", summarise(turns(ranks=[1, 1]), ranks=2)),
]


def test_a_table_has_a_heading_a_rule_and_a_line_for_each_row() -> None:
    heading, rule, first, second = table(ROWS).splitlines()
    assert heading.startswith("trace     side")
    assert set(rule) == {"-", " "}
    assert "1 / 1" in first
    assert "0 of 1" in first
    assert "0 / 2" in second
    assert "1 of 1" in second
    assert "40.0%" in second
    assert len({len(line) for line in (rule, first, second)}) == 1


def test_a_markdown_table_has_as_many_cells_in_every_line() -> None:
    lines = table(ROWS, markdown=True).splitlines()
    assert {line.count("|") for line in lines} == {12}
    assert lines[1].startswith("| ---")
    assert lines[1].endswith("-: |")


def test_a_table_does_not_count_what_no_server_told() -> None:
    unknown = summarise([replace(TURN, rank=None)], ranks=2)
    assert table([Row("programs", "stock", unknown)]).splitlines()[2].count("unknown") == 2
    assert summarise([], ranks=2).knows_ranks
