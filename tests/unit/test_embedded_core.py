from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto_vllm.embedded.core import Call, Core, Ticket
from tenuto_vllm.embedded.latency import Latency
from tenuto_vllm.embedded.placements import PLACEMENTS
from tenuto_vllm.retention import RETENTIONS

SIZE = 4
SLOW = Latency(overhead_s=0.5, uncached_s=0.1, decode_s=0.2, crowd_s=0.05)


def call(first: int, tokens: int, output: int = 1, **said: object) -> Call:
    keys = np.arange(first, first + tokens // SIZE, dtype=np.int64)
    return Call(keys, tokens, output, **said)  # type: ignore[arg-type]


def play(core: Core, calls: list[tuple[float, Call]]) -> list[Ticket]:
    """Submit calls at their times on a virtual clock; return them when all have ended."""
    tickets: list[Ticket] = []
    waiting = sorted(calls, key=lambda one: one[0])
    while waiting or core.next_s is not None:
        at_s = core.next_s
        if waiting and (at_s is None or waiting[0][0] < at_s):
            now_s, one = waiting.pop(0)
            core.advance(now_s)
            tickets.append(core.submit(one, now_s))
        elif at_s is not None:
            core.advance(at_s)
    return tickets


CALLS = st.lists(
    st.tuples(
        st.floats(0, 20),
        st.integers(0, 40),
        st.integers(1, 24),
        st.integers(1, 6),
        st.sampled_from(["", "a", "b", "c"]),
        st.booleans(),
    ),
    max_size=25,
)


@given(CALLS, st.sampled_from(sorted(PLACEMENTS)), st.sampled_from(sorted(RETENTIONS)))
@settings(max_examples=150, deadline=None)
def test_any_calls_end_in_order_and_give_everything_back(calls, placement, retention):
    core = Core(
        2,
        12,
        SIZE,
        latency=SLOW,
        placement=PLACEMENTS[placement],
        retention=RETENTIONS[retention],
    )
    given_ = [
        (at_s, call(first, tokens, output, session=session, run=session, gap_s=3.0))
        for at_s, first, tokens, output, session, _ in calls
    ]
    tickets = play(core, given_)
    assert len(tickets) == len(calls)
    for ticket in tickets:
        assert not ticket.is_open
        assert ticket.submitted_s <= ticket.admitted_s <= ticket.first_s <= ticket.end_s
        assert 0 <= ticket.cached_tokens < ticket.call.prompt_tokens
    for rank in core.ranks:
        assert (rank.pool.free, rank.running, rank.decoding) == (rank.pool.total, 0, 0)
        assert not rank.open
    assert sum(rank.requests for rank in core.ranks) == len(calls)


@given(CALLS)
@settings(max_examples=150, deadline=None)
def test_calls_that_are_taken_back_at_any_time_leave_nothing(calls):
    core = Core(2, 12, SIZE, latency=SLOW)
    now_s, open_ = 0.0, []
    for at_s, first, tokens, output, session, leaves in sorted(calls):
        now_s = at_s
        core.advance(now_s)
        open_.append(core.submit(call(first, tokens, output, session=session), now_s))
        if leaves:
            core.cancel(open_.pop(0), now_s)
    while core.next_s is not None:
        core.advance(core.next_s)
    for rank in core.ranks:
        assert (rank.pool.free, rank.running, rank.decoding) == (rank.pool.total, 0, 0)
        assert not rank.open


def test_time_goes_by_the_latency_model():
    core = Core(1, 100, SIZE, latency=SLOW)
    first, second = play(core, [(0.0, call(0, 8, 5)), (0.0, call(0, 12, 3))])
    # 0.5 + 8 * 0.1, then 4 tokens of 0.2.
    assert (first.admitted_s, first.first_s) == (0.0, pytest.approx(1.3))
    assert first.end_s == pytest.approx(2.1)
    # Its first 8 tokens are cached; prefill waits for the first's, decode has it beside.
    assert second.cached_tokens == 8
    assert second.admitted_s == pytest.approx(1.3)
    assert second.first_s == pytest.approx(1.3 + 0.5 + 0.4)
    assert second.end_s == pytest.approx(2.2 + 2 * 0.2)


def test_calls_of_a_recorded_length_do_not_wait_for_each_other():
    core = Core(1, 100, SIZE, latency=SLOW)
    tickets = play(core, [(0.0, call(n * 10, 8, takes_s=5.0)) for n in range(3)])
    assert [ticket.end_s for ticket in tickets] == [5.0] * 3


@pytest.mark.parametrize(
    ("placement", "ranks"),
    [
        ("round-robin", [0, 1, 2, 0, 1, 2]),
        ("least-loaded", [0, 1, 2, 0, 1, 2]),
        ("session-sticky", [0, 1, 0, 1, 0, 1]),
        ("subagent-keyed", [0, 1, 0, 1, 0, 1]),
        ("prefix-oracle", [0, 1, 0, 1, 0, 1]),
    ],
)
def test_each_placement_goes_by_its_table(placement, ranks):
    core = Core(3, 100, SIZE, placement=PLACEMENTS[placement])
    tickets = play(
        core,
        [
            (n * 100.0, call(50 * (n % 2), 8 + 4 * n, session="ab"[n % 2], run="ab"[n % 2], turn=n))
            for n in range(6)
        ],
    )
    assert [ticket.rank for ticket in tickets] == ranks


@pytest.mark.parametrize("placement", ["user-hash", "session-hash", "agent-hash", "tenuto"])
def test_what_goes_by_hash_or_home_stays_where_it_is(placement):
    core = Core(4, 100, SIZE, placement=PLACEMENTS[placement])
    tickets = play(
        core,
        [(n * 100.0, call(0, 8 + 4 * n, session="s", run="r", user="u", turn=n)) for n in range(5)],
    )
    assert len({ticket.rank for ticket in tickets}) == 1


def test_an_inheriting_child_begins_at_its_parents_home():
    core = Core(4, 100, SIZE, placement=PLACEMENTS["tenuto"])
    tickets = play(
        core,
        [
            (0.0, call(0, 8, session="other", run="q")),
            (1.0, call(20, 8, session="parent", run="r")),
            (2.0, call(20, 12, session="child", run="r", parent="parent", inherits=True)),
            (3.0, call(40, 12, session="fresh", run="r", parent="parent")),
        ],
    )
    _, parent, child, fresh = (ticket.rank for ticket in tickets)
    assert child == parent
    assert fresh != parent


def test_a_latency_model_survives_its_file_and_refuses_what_is_none(tmp_path):
    SLOW.to_file(tmp_path / "latency.json")
    assert Latency.from_file(tmp_path / "latency.json") == SLOW
    (tmp_path / "no.json").write_text('{"speed": 3}')
    with pytest.raises(ValueError, match=r"no\.json is no latency model"):
        Latency.from_file(tmp_path / "no.json")
    with pytest.raises(ValueError, match="decode_s is -1"):
        Latency(decode_s=-1.0)
