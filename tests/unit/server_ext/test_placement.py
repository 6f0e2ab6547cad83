"""The placement rule, against what its docstring promises."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto_vllm._wire import Markers, Turn, affinity_token, parse_affinity
from tenuto_vllm.model import Placement
from tenuto_vllm.placement import Ledger, Pending, by_hash, home_of, place
from tenuto_vllm.placement.token import is_cold, token_of

ids = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=8, max_size=40)
ranks = st.integers(1, 64)
loads = st.lists(st.integers(0, 4).map(float), min_size=1, max_size=64)
instances = st.text("0123456789abcdef", min_size=1, max_size=32)


@given(ids, instances, ranks, st.integers(0, 9999), st.data())
def test_a_token_of_this_server_names_the_home_whatever_the_turn(
    session: str, instance: str, n: int, turn: int, data: st.DataObject
) -> None:
    rank = data.draw(st.integers(0, n - 1))
    said = Markers(session, turn=Turn(n=turn), affinity=affinity_token(instance, rank))
    placement = home_of(said, instance, n)
    assert placement is not None
    assert (placement.rank, placement.why) == (rank, "home")


def test_a_child_that_inherits_starts_at_its_parents_home_and_says_so() -> None:
    token = affinity_token("0123abcd", 1)
    first = Markers("child-session", turn=Turn(n=0, fork="inherit"), affinity=token)
    later = Markers("child-session", turn=Turn(n=1), affinity=token)
    assert [home_of(said, "0123abcd", 2).why for said in (first, later)] == ["parent", "home"]


near_tokens = st.builds(
    "{}.{}{}".format,
    st.sampled_from(["here", "there", "", "he re"]),
    st.sampled_from(["0", "1", "2", "01", "-1", "+1", "1.0", "\uff11", "", "99999", "100000"]),
    st.sampled_from(["", ".mac", ".", ".a b", "\n"]),
)


@given(ids, ranks, st.text(max_size=40) | near_tokens)
def test_only_a_well_formed_token_of_this_server_names_a_home(
    session: str, n: int, token: str
) -> None:
    placement = home_of(Markers(session, affinity=token), "here", n)
    if placement is not None:
        assert token in {f"here.{placement.rank}{mac}" for mac in ("", ".mac")}
        assert placement.rank < n


def test_another_instance_and_a_rank_that_is_gone_name_no_home() -> None:
    assert home_of(Markers("some-session", affinity="there.0"), "here", 2) is None
    assert home_of(Markers("some-session", affinity="here.2"), "here", 2) is None
    assert home_of(Markers("some-session"), "here", 2) is None


def placed(
    said: Markers,
    named: Placement | None = None,
    *,
    ledger: Ledger,
    pending: Pending | None = None,
    load: Sequence[float] | None = None,
    now_s: float = 0.0,
) -> Placement:
    return place(
        said,
        named,
        ledger=ledger,
        pending=pending or Pending(),
        loads=lambda: load or [0.0] * ledger.ranks,
        now_s=now_s,
    )


def served(ledger: Ledger, session: str, rank: int, turn: int, tokens: int, at_s: float) -> None:
    ledger.sent(session, rank, turn, at_s)
    ledger.begun(session, rank, tokens, at_s)


@given(ids, loads)
def test_a_first_turn_goes_to_the_least_loaded_rank_of_those_that_hold_nothing(
    session: str, load: list[float]
) -> None:
    placement = placed(Markers(session, turn=Turn(n=0)), ledger=Ledger(len(load)), load=load)
    assert placement.why == "first"
    tied = [rank for rank in range(len(load)) if load[rank] == min(load)]
    assert placement.rank == by_hash(session, len(load), tied)


@given(ids, st.integers(2, 16), st.data())
def test_a_first_turn_avoids_the_rank_that_holds_and_has_computed_more(
    session: str, n: int, data: st.DataObject
) -> None:
    busy = data.draw(st.integers(0, n - 1))
    ledger = Ledger(n, 1_000_000)
    served(ledger, "another-session", busy, 0, 50_000, 0.0)
    assert placed(Markers(session, turn=Turn(n=0)), ledger=ledger).rank != busy


@given(ids, loads, st.integers(1, 9) | st.none())
def test_a_later_turn_without_a_token_goes_by_hash_whatever_the_load(
    session: str, load: list[float], turn: int | None
) -> None:
    said = Markers(session, turn=Turn(n=turn))
    placement = placed(said, ledger=Ledger(len(load)), load=load)
    assert (placement.rank, placement.why) == (by_hash(session, len(load)), "hash")


@given(ids, loads, st.integers(0, 9), st.data())
def test_a_session_whose_home_is_free_goes_there_whatever_the_load(
    session: str, load: list[float], turn: int, data: st.DataObject
) -> None:
    home = Placement(data.draw(st.integers(0, len(load) - 1)), "home")
    said = Markers(session, turn=Turn(n=turn))
    assert placed(said, home, ledger=Ledger(len(load), 100), load=load) == home


def test_a_session_that_has_lost_its_cache_is_placed_anew() -> None:
    ledger = Ledger(2, 1000)
    served(ledger, "session-a", 0, 0, 600, 0.0)
    for n in range(3):
        served(ledger, f"session-{n}", 0, 0, 600, 1.0)
    said = Markers("session-a", turn=Turn(n=1))
    assert placed(said, Placement(0, "home"), ledger=ledger) == Placement(1, "moved")
    # Where all ranks are alike it stays, though nothing holds it there.
    served(ledger, "session-b", 1, 0, 600, 2.0)
    served(ledger, "session-c", 1, 0, 600, 2.0)
    served(ledger, "session-d", 1, 0, 600, 2.0)
    served(ledger, "session-e", 1, 0, 600, 2.0)
    assert placed(said, Placement(0, "home"), ledger=ledger) == Placement(0, "home")


@pytest.mark.parametrize(
    ("waiting", "context", "moves"),
    [(2_000, 1_000, False), (100_000, 1_000, True), (100_000, 60_000, False)],
    ids=["a short wait", "a long wait", "a long wait, and much to compute again"],
)
def test_a_warm_session_leaves_when_the_wait_costs_more_than_its_prompt(
    waiting: int, context: int, moves: bool
) -> None:
    ledger, pending = Ledger(2, 1_000_000), Pending(1_000.0)
    served(ledger, "session-a", 0, 0, context, 0.0)
    pending.begin(0, waiting)
    said = Markers("session-a", turn=Turn(n=1))
    found = placed(said, Placement(0, "home"), ledger=ledger, pending=pending, now_s=100.0)
    assert found == (Placement(1, "moved") if moves else Placement(0, "home"))


@given(st.lists(st.floats(0, 30), min_size=1, max_size=60))
def test_a_session_moves_at_most_once_in_a_minute(waits: list[float]) -> None:
    ledger, now_s, home, moved = Ledger(2, 1_000_000), 0.0, 0, []
    served(ledger, "session-a", 0, 0, 10, now_s)
    for turn, wait_s in enumerate(waits, start=1):
        now_s += wait_s
        pending = Pending(1_000.0)
        pending.begin(home, 1_000_000)
        said, named = Markers("session-a", turn=Turn(n=turn)), Placement(home, "home")
        found = placed(said, named, ledger=ledger, pending=pending, now_s=now_s)
        if found.why == "moved":
            moved.append(now_s)
        home = found.rank
        served(ledger, "session-a", home, turn, 10 + turn, now_s)
    assert all(later - earlier >= 60 for earlier, later in itertools.pairwise(moved))
    assert moved


def test_children_at_once_stay_with_their_parent_until_its_rank_is_full_of_them() -> None:
    ledger, pending = Ledger(8, 10_000_000), Pending(10_000.0)
    served(ledger, "parent-session", 3, 4, 100_000, 0.0)
    ranks = []
    for n in range(64):
        said = Markers(f"child-{n:08}", parent="parent-session", turn=Turn(n=0, fork="inherit"))
        found = placed(said, Placement(3, "parent"), ledger=ledger, pending=pending)
        pending.begin(found.rank, 20_000)
        ranks.append(found.rank)
    assert ranks[:8] == [3] * 8
    assert set(ranks) == set(range(8))
    assert max(Counter(ranks).values()) < 64 / 2


@pytest.mark.parametrize("token", ["there.0", "here.9"], ids=["a restart", "a rank that is gone"])
def test_sessions_with_a_token_that_names_no_home_here_begin_anew_evenly(token: str) -> None:
    ledger, taken = Ledger(4, 100_000), Counter()
    for n in range(16):
        said = Markers(f"session-{n:02}", turn=Turn(n=7), affinity=token)
        found = placed(said, home_of(said, "here", 4), ledger=ledger)
        assert found.why == "first"
        served(ledger, said.session, found.rank, 7, 1_000, float(n))
        taken[found.rank] += 1
    assert set(taken.values()) == {4}


@pytest.mark.parametrize("before", [(60, 40), (75, 25)])
def test_a_burst_of_first_turns_does_not_all_follow_an_old_imbalance(
    before: tuple[int, int],
) -> None:
    ledger, load = Ledger(2, 1_000_000), [0.0, 0.0]
    for rank, tokens in enumerate(before):
        ledger.begun(f"#{rank}", rank, tokens * 1_000, 0.0)
    for n in range(12):
        said = Markers(f"session-{n:02}", turn=Turn(n=0))
        load[placed(said, ledger=ledger, load=load).rank] += 1
    assert load[1] >= load[0] >= 1
    assert load[1] <= 10


def test_an_auxiliary_call_goes_where_there_is_room_and_not_home() -> None:
    said = Markers("session-a", turn=Turn(n=3, kind="auxiliary"))
    found = placed(said, Placement(0, "home"), ledger=Ledger(2), load=[5.0, 0.0])
    assert found == Placement(1, "auxiliary")


def test_a_session_that_begins_again_without_its_token_goes_where_it_is_warm() -> None:
    ledger = Ledger(8, 1000)
    served(ledger, "session-a", 5, 3, 500, 0.0)
    again = Markers("session-a", turn=Turn(n=0))
    assert placed(again, ledger=ledger) == Placement(5, "home")
    for n in range(3):
        served(ledger, f"session-{n}", 5, 0, 500, 1.0)
    assert placed(again, ledger=ledger).why == "first"


@given(ids, st.integers(1, 63))
def test_one_more_rank_moves_a_session_to_the_new_rank_or_not_at_all(session: str, n: int) -> None:
    before, after = by_hash(session, n), by_hash(session, n + 1)
    assert after in (before, n)


def test_the_hash_spreads_sessions_over_all_ranks() -> None:
    counts = Counter(by_hash(f"session-{i}", 8) for i in range(8000))
    assert set(counts) == set(range(8))
    assert max(counts.values()) < 1.15 * 1000


def test_sessions_that_begin_one_after_another_on_idle_ranks_take_one_rank_each() -> None:
    ledger, taken = Ledger(8, 100_000), []
    for i in range(8):
        said = Markers(f"session-{i}", turn=Turn(n=0))
        taken.append(placed(said, ledger=ledger).rank)
        served(ledger, said.session, taken[-1], 0, 1_000, float(i))
    assert sorted(taken) == list(range(8))


@given(ids, st.integers(2, 64), st.data())
def test_nothing_goes_to_a_closed_rank_whatever_the_request_says(
    session: str, n: int, data: st.DataObject
) -> None:
    closed = data.draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=n - 1))
    ledger, pending = Ledger(n, 10_000), Pending()
    for rank in range(n):
        ledger.sent(f"other-session-{rank}", rank, 0, 0.0)
        ledger.begun(f"other-session-{rank}", rank, data.draw(st.integers(1, 20_000)), 0.0)
        pending.begin(rank, data.draw(st.integers(0, 100_000)))
    said = Markers(
        data.draw(st.sampled_from([session, "other-session-0"])),
        parent="other-session-1",
        turn=Turn(
            n=data.draw(st.none() | st.integers(0, 2)),
            kind=data.draw(st.sampled_from([None, "auxiliary"])),
            fork=data.draw(st.sampled_from([None, "inherit"])),
        ),
        affinity=data.draw(
            st.none()
            | st.integers(0, n).map(lambda rank: f"here.{rank}")
            | st.sampled_from(["there.0", "none of ours"])
        ),
    )
    placement = place(
        said,
        home_of(said, "here", n),
        ledger=ledger,
        pending=pending,
        loads=lambda: [0.0] * n,
        now_s=1.0,
        closed=closed,
    )
    assert placement.rank not in closed


def test_a_session_whose_rank_closes_moves_once_and_does_not_go_back_by_itself() -> None:
    ledger, pending = Ledger(3, 10_000), Pending()
    ledger.sent("some-session", 0, 0, 0.0)
    ledger.begun("some-session", 0, 500, 0.0)

    def turn(n: int, rank: int, closed: set[int]) -> Placement:
        said = Markers("some-session", turn=Turn(n=n), affinity=f"here.{rank}")
        placement = place(
            said,
            home_of(said, "here", 3),
            ledger=ledger,
            pending=pending,
            loads=lambda: [0.0] * 3,
            now_s=float(n),
            closed=closed,
        )
        ledger.sent("some-session", placement.rank, n, float(n))
        ledger.begun("some-session", placement.rank, 500, float(n))
        return placement

    moved = turn(1, 0, {0})
    assert (moved.why, moved.rank != 0) == ("moved", True)
    assert turn(2, moved.rank, {0}) == Placement(moved.rank, "home")
    assert turn(3, moved.rank, set()) == Placement(moved.rank, "home")


def test_a_token_of_before_its_rank_lost_the_cache_keeps_nobody_on_a_crowded_rank() -> None:
    ledger, pending = Ledger(2, 10_000), Pending()
    ledger.sent("other-session", 0, 0, 0.0)
    ledger.begun("other-session", 0, 5_000, 0.0)
    said = Markers("some-session", turn=Turn(n=4), affinity="here.0")
    named = home_of(said, "here", 2)

    def chosen(*, cold: bool) -> Placement:
        return place(
            said,
            named,
            ledger=ledger,
            pending=pending,
            loads=lambda: [0.0, 0.0],
            now_s=1.0,
            is_cold=cold,
        )

    assert chosen(cold=False) == Placement(0, "home")
    assert chosen(cold=True) == Placement(1, "moved")


@given(instances, st.integers(0, 99), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_token_is_cold_exactly_when_its_ranks_cache_was_lost_since(
    instance: str, rank: int, given_at: int, last: int
) -> None:
    token = token_of(instance, rank, given_at)
    assert parse_affinity(token) == (instance, rank)
    assert is_cold(token, last) is (given_at != last)
