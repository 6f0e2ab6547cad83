"""The placement rule, against what its docstring promises."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tenuto_vllm._wire import Markers, Turn, affinity_token
from tenuto_vllm.placement import Recent, by_hash, home_of, place

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


@given(ids, loads, st.data())
def test_a_first_turn_goes_to_the_least_loaded_rank_with_fewest_recent_sessions(
    session: str, load: list[float], data: st.DataObject
) -> None:
    count = len(load)
    recent = data.draw(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=count, max_size=count))
    placement = place(Markers(session, turn=Turn(n=0)), load, recent)
    assert placement.why == "first"
    best = min(zip(load, recent, strict=True))
    assert (load[placement.rank], recent[placement.rank]) == best
    tied = [rank for rank in range(count) if (load[rank], recent[rank]) == best]
    assert placement.rank == tied[by_hash(session, len(tied))]


@given(ids, loads, st.integers(1, 9) | st.none())
def test_a_later_turn_without_a_token_goes_by_hash_whatever_the_load(
    session: str, load: list[float], turn: int | None
) -> None:
    placement = place(Markers(session, turn=Turn(n=turn)), load, [0.0] * len(load))
    assert (placement.rank, placement.why) == (by_hash(session, len(load)), "hash")


@given(ids, st.integers(1, 63))
def test_one_more_rank_moves_a_session_to_the_new_rank_or_not_at_all(session: str, n: int) -> None:
    before, after = by_hash(session, n), by_hash(session, n + 1)
    assert after in (before, n)


def test_the_hash_spreads_sessions_over_all_ranks() -> None:
    counts = Counter(by_hash(f"session-{i}", 8) for i in range(8000))
    assert set(counts) == set(range(8))
    assert max(counts.values()) < 1.15 * 1000


def test_sessions_that_begin_one_after_another_on_idle_ranks_take_one_rank_each() -> None:
    recent, taken = Recent(), []
    for i in range(8):
        now_s = 100.0 + i
        placement = place(Markers(f"session-{i}", turn=Turn(n=0)), [0.0] * 8, recent.at(now_s, 8))
        recent = recent.placed(placement.rank, now_s, 8)
        taken.append(placement.rank)
    assert sorted(taken) == list(range(8))


@given(st.lists(st.tuples(st.floats(0, 1e4), st.integers(0, 3)), max_size=20))
def test_recent_counts_fade_and_never_exceed_the_placements(
    events: list[tuple[float, int]],
) -> None:
    recent, placed = Recent(), Counter()
    for now_s, rank in sorted(events):
        recent = recent.placed(rank, now_s, 4)
        placed[rank] += 1
    end_s = max((at for at, _ in events), default=0.0)
    for rank, count in enumerate(recent.at(end_s, 4)):
        assert 0.0 <= count <= placed[rank]
    assert sum(recent.at(end_s + 1e6, 4)) < 1e-9
    assert len(recent.at(end_s, 2)) == 2
