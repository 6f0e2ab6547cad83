"""What an API process remembers of sessions and ranks."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto_vllm.placement import Ledger
from tenuto_vllm.placement.ledger import HALF_LIFE_S

events = st.lists(
    st.tuples(
        st.sampled_from(["sent", "begun", "ended", "emptied"]),
        st.sampled_from(["a", "b", "c", "d"]),
        st.integers(0, 2),
        st.integers(0, 50),
    ),
    max_size=40,
)


def play(ledger: Ledger, happened: list[tuple[str, str, int, int]]) -> None:
    for number, (kind, session, rank, tokens) in enumerate(happened):
        if kind == "sent":
            ledger.sent(session, rank, number, float(number))
        elif kind == "begun":
            ledger.begun(session, rank, tokens, float(number))
        elif kind == "ended":
            ledger.ended(session)
        else:
            ledger.emptied(rank)


def served(ledger: Ledger, session: str, rank: int, turn: int, tokens: int, at_s: float) -> None:
    ledger.sent(session, rank, turn, at_s)
    ledger.begun(session, rank, tokens, at_s)


@given(events)
def test_the_contexts_at_home_add_up_to_those_of_the_sessions_there(
    happened: list[tuple[str, str, int, int]],
) -> None:
    ledger = Ledger(3, 60)
    play(ledger, happened)
    seats = [seat for name in "abcd" if (seat := ledger.seat(name)) is not None]
    wanted = [sum(seat.tokens for seat in seats if seat.rank == rank) for rank in range(3)]
    assert list(ledger.live()) == wanted
    assert len(ledger) == len(seats)


@given(events)
def test_no_more_sessions_are_remembered_than_are_allowed(
    happened: list[tuple[str, str, int, int]],
) -> None:
    ledger = Ledger(3, 60, most_sessions=2)
    play(ledger, happened)
    assert len(ledger) <= 2
    assert all(tokens >= 0 for tokens in ledger.live())


def test_a_home_is_lost_when_others_have_used_its_rank_up() -> None:
    ledger = Ledger(2, 100)
    served(ledger, "a", 0, 0, 60, 0.0)
    assert not ledger.has_lost("a", 0, 1)
    served(ledger, "b", 0, 0, 60, 1.0)
    assert ledger.held("a", 0) == 40
    assert not ledger.has_lost("a", 0, 1)
    served(ledger, "c", 0, 0, 60, 2.0)
    assert ledger.has_lost("a", 0, 1)


@pytest.mark.parametrize("turn", [None, 2, 5], ids=["not said", "one between", "some between"])
def test_a_home_that_another_process_may_have_served_since_is_not_lost(turn: int | None) -> None:
    ledger = Ledger(2, 100)
    served(ledger, "a", 0, 0, 60, 0.0)
    served(ledger, "b", 0, 0, 100, 1.0)
    assert ledger.has_lost("a", 0, 1)
    assert not ledger.has_lost("a", 0, turn)


def test_a_home_is_warm_when_its_first_token_is_out() -> None:
    ledger = Ledger(2, 100)
    ledger.sent("a", 0, 0, 0.0)
    seat = ledger.seat("a")
    assert seat is not None
    assert not seat.is_warm
    ledger.begun("a", 0, 60, 1.0)
    assert seat.is_warm
    ledger.sent("a", 1, 1, 2.0)
    assert (seat.rank, seat.is_warm, seat.moved_s) == (1, False, 2.0)


def test_without_a_known_capacity_no_home_is_lost() -> None:
    ledger = Ledger(2)
    served(ledger, "a", 0, 0, 60, 0.0)
    ledger.emptied(0)
    assert not ledger.has_lost("a", 0, 1)


def test_a_rank_that_was_emptied_has_lost_its_sessions() -> None:
    ledger = Ledger(2, 100)
    served(ledger, "a", 0, 0, 60, 0.0)
    ledger.emptied(0)
    assert ledger.has_lost("a", 0, 1)


def test_what_was_found_is_not_counted_as_computed_and_what_was_fades() -> None:
    ledger = Ledger(2, 1000)
    served(ledger, "a", 0, 0, 60, 0.0)
    served(ledger, "a", 0, 1, 80, 0.0)
    ledger.begun("child", 0, 90, 0.0, found=80)
    assert list(ledger.computed()) == [90, 0]
    ledger.begun("other", 1, 90, HALF_LIFE_S)
    assert list(ledger.computed()) == [90, 180]


def test_what_was_computed_counts_for_less_than_what_was_later_for_ever() -> None:
    ledger = Ledger(2, 1000)
    for hour in range(5_000):
        ledger.begun(f"#{hour}", hour % 2, 100, hour * HALF_LIFE_S)
    one, two = ledger.computed()
    assert two / one == pytest.approx(2.0)


def test_a_rank_that_is_gone_takes_its_sessions_with_it_and_the_others_stay() -> None:
    ledger = Ledger(3, 100)
    for rank, name in enumerate("abc"):
        served(ledger, name, rank, 0, 10 + rank, 0.0)
    ledger.resize(2)
    assert (ledger.ranks, list(ledger.live()), ledger.seat("c")) == (2, [10, 11], None)
    ledger.resize(4)
    assert list(ledger.live()) == [10, 11, 0, 0]
    assert ledger.held("b", 1) == 11


def test_a_host_that_has_been_up_for_years_is_counted_like_any_other() -> None:
    for since_boot_s in (0.0, 90 * 86_400.0, 20 * 365 * 86_400.0):
        ledger = Ledger(2)
        ledger.sent("a", 1, 0, since_boot_s)
        ledger.begun("a", 1, 500, since_boot_s)
        assert ledger.computed()[1] > ledger.computed()[0] == 0
        ledger.begun("b", 0, 400, since_boot_s + HALF_LIFE_S)
        zero, one = ledger.computed()
        assert zero / one == pytest.approx(400 * 2 / 500)


def test_many_short_prompts_of_no_session_push_nobody_out_by_their_number() -> None:
    ledger = Ledger(1, 1_000_000, most_sessions=50)
    ledger.sent("a", 0, 0, 0.0)
    ledger.begun("a", 0, 5_000, 0.0)
    for n in range(5_000):
        ledger.passed(0, 100, float(n))
    assert ledger.held("a", 0) == 5_000
    ledger.passed(0, 700_000, 5_000.0)
    assert ledger.held("a", 0) < 5_000


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["sent", "ended", "resize"]),
            st.sampled_from("abcdef"),
            st.integers(0, 3),
        ),
        max_size=60,
    )
)
def test_the_homes_on_each_rank_are_those_of_the_remembered_sessions(
    steps: list[tuple[str, str, int]],
) -> None:
    ledger = Ledger(4, most_sessions=4)
    for what, session, number in steps:
        if what == "sent":
            ledger.sent(session, number % ledger.ranks, 0, 0.0)
        elif what == "ended":
            ledger.ended(session)
        else:
            ledger.resize(number + 1)
        counted = Counter(seat.rank for _, seat in ledger.seats())
        assert list(ledger.homes()) == [counted[rank] for rank in range(ledger.ranks)]
