from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenuto.trace import Session, Trace, Turn, stats
from tenuto.trace.runs import Runs, dropped, ids_of, merged, runs_of, shared, taken
from tenuto.trace.seen import Seen

runs = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=5).map(merged)


@given(st.lists(runs, max_size=12))
def test_a_cache_without_end_in_runs_is_one_of_single_ids(prompts: list[Runs]) -> None:
    seen, ids = Seen(), set[int]()
    for prompt in prompts:
        flat = ids_of(prompt)
        expected = next((at for at, block in enumerate(flat) if block not in ids), len(flat))
        assert seen.prefix(prompt) == expected
        seen.add(prompt)
        ids |= set(flat)


@given(runs, runs, st.integers(-2, 60))
def test_runs_are_reckoned_with_as_their_ids(left: Runs, right: Runs, count: int) -> None:
    ids, others, kept = ids_of(left), ids_of(right), max(0, count)
    assert ids_of(taken(left, count)) == ids[:kept]
    assert ids_of(dropped(left, count)) == ids[kept:]
    assert runs_of(ids) == left
    both = zip(ids, others, strict=False)
    different = (at for at, (ours, theirs) in enumerate(both) if ours != theirs)
    assert shared(left, right) == next(different, min(len(ids), len(others)))


def turn(first: int, blocks: int, at_s: float, reason: str = "tool_use") -> Turn:
    return Turn(((first, blocks),), blocks * 64 + 32, 10, at_s, at_s + 1, finish_reason=reason)


MAIN = Session("main", "main", (turn(0, 2, 0.0), turn(0, 4, 5.0, "end_turn"), turn(0, 4, 5.5)))
CHILD = Session("b", "Explore", (turn(0, 3, 4.0),), "main", 0, 1)


def test_figures_of_a_forking_trace() -> None:
    found = stats([Trace("t", 64, (MAIN, CHILD))])
    assert (found.traces, found.sessions, found.calls) == (1, 2, 4)
    assert (found.forks, found.forking, found.joined) == (1, 1, 1)
    # Calls that overlap have no gap.
    assert {reason: gap.values for reason, gap in found.gaps_s.items()} == {"tool_use": [4.0]}
    assert found.fresh_tokens.values == [160.0, 32.0]
    # In the order of time: 2 of none, the child's 3 after 2, then 4 after 3, 4 after 4.
    assert (found.all.hit_blocks, found.all.blocks) == (0 + 2 + 3 + 4, 2 + 3 + 4 + 4)
    assert (found.subagents.hit_blocks, found.main.hit_blocks) == (2, 7)
    assert found.all.hit_tokens == 9 * 64
    assert found.all.tokens == 13 * 64 + 4 * 32
    assert found.peak_tokens.values == [288]


def test_block_ids_of_two_runs_are_the_same_only_when_they_are_global() -> None:
    trace = Trace("t", 64, (Session("main", "main", (turn(0, 2, 0.0),)),))
    glob = Trace("t", 64, trace.sessions, "global")
    assert stats([trace, trace]).all.hit_blocks == 0
    assert stats([glob, glob]).all.hit_blocks == 2


def test_figures_of_nothing_are_zero() -> None:
    found = stats([])
    assert (found.all.token_rate, found.all.block_rate, found.input_per_output) == (0.0, 0.0, 0.0)
    assert found.turns.percentile(50) == 0.0
