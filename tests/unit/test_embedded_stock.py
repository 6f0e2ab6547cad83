from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from tenuto_vllm.embedded.stock import RankLoad, place

IDLE = RankLoad(0, 0, 0, 0.0)
LOADS = st.lists(
    st.builds(
        RankLoad,
        st.integers(0, 3),
        st.integers(0, 3),
        st.integers(0, 3),
        st.sampled_from([0.0, 0.5, 0.75, 1.0]),
    ),
    min_size=1,
    max_size=5,
)


def oracle(loads: list[RankLoad], start: int, client_count: int) -> int:
    """The loop of vLLM's get_core_engine_for_request, told step by step."""
    best, least = 0, float(sys.maxsize)
    for i in range(len(loads)):
        index = (start + i) % len(loads)
        load = loads[index]
        score = float(max(client_count * load.inflight, load.waiting + load.running))
        if load.waiting > 0 and load.kv_usage > 0.5:
            score += load.waiting * 6.0 * (load.kv_usage - 0.5)
        if score < least:
            best, least = index, score
    return best


@given(LOADS, st.integers(0, 4), st.integers(1, 3))
def test_the_rule_picks_what_vllms_loop_picks(loads: list[RankLoad], start: int, clients: int):
    start %= len(loads)
    expected = oracle(loads, start, clients), (start + 1) % len(loads)
    assert place(loads, start, client_count=clients) == expected


def test_idle_ranks_are_taken_in_turn():
    start, ranks = 0, []
    for _ in range(5):
        rank, start = place([IDLE] * 3, start)
        ranks.append(rank)
    assert ranks == [0, 1, 2, 0, 1]


def test_a_named_rank_does_not_turn_the_scan():
    assert place([IDLE] * 3, 1, given=2) == (2, 1)


def test_a_queue_on_a_full_cache_weighs_four_times_a_queue_on_an_empty_one():
    full, empty = RankLoad(1, 1, 0, 1.0), RankLoad(3, 3, 0, 0.0)
    assert place([full, empty], 0)[0] == 1
    assert place([full, RankLoad(5, 5, 0, 0.0)], 0)[0] == 0


def test_running_requests_on_a_full_cache_carry_no_penalty():
    assert place([RankLoad(1, 0, 1, 1.0), RankLoad(2, 0, 2, 0.0)], 0)[0] == 0
