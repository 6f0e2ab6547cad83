"""When a session leaves a home that is good for little, and what a home is good for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto_vllm._wire import Markers, Turn
from tenuto_vllm.model import Placement
from tenuto_vllm.placement import Ledger, Pending, place
from tenuto_vllm.placement.shelf import Shelf

HOME = Placement(0, "home")


def placed(
    turn: Turn, ledger: Ledger, *, pending: Pending | None = None, now_s: float = 100.0
) -> Placement:
    return place(
        Markers("session-a", turn=turn),
        HOME,
        ledger=ledger,
        pending=pending or Pending(),
        loads=lambda: [0.0] * ledger.ranks,
        now_s=now_s,
    )


def served(ledger: Ledger, session: str, rank: int, turn: int, tokens: int, at_s: float) -> None:
    ledger.sent(session, rank, turn, at_s)
    ledger.begun(session, rank, tokens, at_s)


@pytest.mark.parametrize(
    ("keep", "elsewhere", "moves"),
    [
        (20_000, 50_000, True),
        (20_000, 92_000, False),
        (60_000, 50_000, False),
        (None, 50_000, False),
    ],
    ids=["little, and much to do", "little", "most of it", "all of it"],
)
def test_a_session_that_keeps_little_leaves_a_home_that_has_more_than_its_share_to_do(
    keep: int | None, elsewhere: int, moves: bool
) -> None:
    ledger = Ledger(2, 1_000_000)
    served(ledger, "session-a", 0, 0, 100_000, 0.0)
    served(ledger, "session-b", 1, 0, elsewhere, 0.0)
    found = placed(Turn(n=1, keep=keep), ledger)
    assert found == (Placement(1, "moved") if moves else HOME)


def test_a_session_that_has_just_moved_stays_whatever_it_keeps_and_has_lost() -> None:
    ledger = Ledger(2, 1_000_000)
    served(ledger, "session-a", 1, 0, 100_000, 0.0)
    served(ledger, "session-a", 0, 1, 100_000, 50.0)
    ledger.begun("another", 0, 1_000_000, 60.0)
    said = Turn(n=2, keep=100)
    assert placed(said, ledger, now_s=109.0) == HOME
    assert placed(said, ledger, now_s=110.0) == Placement(1, "moved")


def test_two_contexts_that_do_not_fit_one_rank_together_part() -> None:
    ledger = Ledger(2, 100_000)
    for turn in range(3):
        for session in ("session-a", "session-b"):
            served(ledger, session, 0, turn, 70_000, turn)
    assert ledger.held("session-a", 0) == 30_000
    assert placed(Turn(n=3), ledger) == Placement(1, "moved")
    # Another process may have served what came between.
    assert placed(Turn(n=5), ledger) == HOME


def test_a_wait_is_worth_leaving_for_when_little_is_kept() -> None:
    ledger, pending = Ledger(2, 1_000_000), Pending(1_000.0)
    served(ledger, "session-a", 0, 0, 60_000, 0.0)
    served(ledger, "session-b", 1, 0, 60_000, 0.0)
    pending.begin(0, 30_000)
    assert placed(Turn(n=1), ledger, pending=pending) == HOME
    assert placed(Turn(n=1, keep=5_000), ledger, pending=pending) == Placement(1, "moved")


def test_children_spread_though_their_parent_has_just_moved() -> None:
    ledger, pending = Ledger(4, 1_000_000), Pending(10_000.0)
    served(ledger, "parent-session", 1, 0, 10_000, 0.0)
    served(ledger, "parent-session", 0, 1, 10_000, 1.0)
    ranks: set[int] = set()
    for n in range(32):
        found = place(
            Markers(f"child-{n:08}", parent="parent-session", turn=Turn(n=0, fork="inherit")),
            Placement(0, "parent"),
            ledger=ledger,
            pending=pending,
            loads=lambda: [0.0] * 4,
            now_s=2.0,
        )
        pending.begin(found.rank, 10_000)
        ranks.add(found.rank)
    assert ranks == {0, 1, 2, 3}


@given(st.integers(0, 200_000), st.integers(0, 200_000))
def test_what_a_home_is_good_for_is_what_it_holds_and_the_turn_keeps(
    others: int, keep: int
) -> None:
    ledger = Ledger(2, 150_000)
    served(ledger, "session-a", 0, 0, 100_000, 0.0)
    ledger.begun("another", 0, others, 1.0)
    held = max(0, 100_000 - max(0, 100_000 + others - 150_000))
    assert ledger.held("session-a", 0, keep) == min(held, keep)
    assert ledger.use("session-a", 0, 1, keep) == pytest.approx(min(held, keep) / 100_000)
    assert ledger.use("session-a", 0, 7, keep) == pytest.approx(min(100_000, keep) / 100_000)


def test_children_take_the_room_of_what_they_inherit_once() -> None:
    shelf = Shelf(100_000, 100)
    shelf.used("parent", 50_000)
    for n in range(5):
        shelf.used(f"child-{n}", 60_000, 50_000)
    assert [shelf.held(f"child-{n}") for n in range(5)] == [60_000] * 5
    assert shelf.held("parent") == 50_000
    shelf.used("another", 25_000)
    assert shelf.held("parent") == 25_000
    shelf.used("child-0", 70_000, 60_000)
    assert shelf.held("child-0") == 70_000
    shelf.used("child-0", 30_000, 20_000)
    assert shelf.held("child-0") == 30_000
