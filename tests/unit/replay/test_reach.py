from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenuto.replay import Reach, dense, prompt_text, prompt_tokens
from tenuto.trace.model import Session, Trace, Turn
from tenuto.trace.runs import ids_of, runs_of

prompts = st.lists(
    st.tuples(st.lists(st.integers(0, 6), max_size=8), st.integers(0, 9), st.integers(0, 2)),
    max_size=12,
)


def leading(ids: list[int], others: list[list[int]]) -> int:
    """Return how many leading ids of a prompt another one has too, naively."""
    return max((n for n in range(len(ids) + 1) for one in others if one[:n] == ids[:n]), default=0)


@given(prompts, st.sampled_from([None, 2, 4, 8, 16]))
def test_reachable_tokens_are_the_longest_prefix_sent_before(
    calls: list[tuple[list[int], int, int]], server_block_size: int | None
) -> None:
    reach = Reach(server_block_size)
    size = server_block_size or 4
    before: list[tuple[list[int], int]] = []
    for ids, tail, rank in calls:
        tokens = len(ids) * 4 + tail
        most = max(0, tokens - 1) // size * size
        found = reach.sent("t", runs_of(ids), tokens, 4, rank)
        everywhere = leading(ids, [one for one, _ in before]) * 4 // size * size
        there = leading(ids, [one for one, at in before if at == rank]) * 4 // size * size
        assert found == (min(everywhere, most), min(there, most))
        before.append((ids, rank))


def test_spaces_share_nothing_and_an_unknown_rank_has_no_figure() -> None:
    reach = Reach()
    assert reach.sent("one", ((1, 3),), 13, 4, None) == (0, None)
    assert reach.sent("other", ((1, 3),), 13, 4, 0) == (0, 0)
    assert reach.sent("one", ((1, 3),), 13, 4, 0) == (12, 0)


# Runs that overlap, far from 0 as a recorder's are.
stretches = st.builds(
    lambda first, length: [2**62 + first + n for n in range(length)],
    st.integers(0, 12),
    st.integers(1, 5),
)
many = st.lists(
    st.lists(stretches, max_size=3).map(lambda parts: [one for part in parts for one in part]),
    min_size=1,
    max_size=4,
)


def trace_of(turns: list[list[int]], scope: str = "run") -> Trace:
    made = tuple(Turn(runs_of(ids), 8 * len(ids), 1, 0.0, 0.0) for ids in turns)
    return Trace("t", 8, (Session("s", "s", made),), scope)  # type: ignore[arg-type]


def ids_in(trace: Trace) -> list[list[int]]:
    return [ids_of(turn.blocks) for turn in trace.sessions[0].turns]


@given(many, many, st.sampled_from(["run", "global"]))
def test_dense_ids_are_one_to_one_and_without_gaps(
    one: list[list[int]], other: list[list[int]], scope: str
) -> None:
    made = [ids_in(trace) for trace in dense([trace_of(one, scope), trace_of(other, scope)])]
    spaces = [(one + other, made[0] + made[1])]
    if scope == "run":
        spaces = [(one, made[0]), (other, made[1])]
    for old, new in spaces:
        pairs = {
            pair for was, now in zip(old, new, strict=True) for pair in zip(was, now, strict=True)
        }
        assert len(pairs) == len({was for was, _ in pairs})
        assert {now for _, now in pairs} == set(range(len(pairs)))


@given(
    st.lists(st.integers(0, 3), max_size=5),
    st.lists(st.integers(0, 3), max_size=5),
    st.integers(0, 7),
    st.sampled_from([4, 128, 151_643]),
)
def test_token_prompts_share_exactly_the_shared_blocks(
    left: list[int], right: list[int], tail: int, vocab: int
) -> None:
    made = [
        prompt_tokens(runs_of(ids), len(ids) * 8 + tail, 8, vocab=vocab, salt="s", call=call)
        for call, ids in enumerate((left, right))
    ]
    assert [len(one) for one in made] == [len(left) * 8 + tail, len(right) * 8 + tail]
    assert all(0 <= token < vocab for one in made for token in one)
    in_blocks = {token for one in made for token in one[: len(one) - tail]}
    assert not tail or made[0][len(left) * 8] not in in_blocks
    shared = leading(left, [right]) * 8
    assert made[0][:shared] == made[1][:shared]
    assert made[0][: shared + 8] != made[1][: shared + 8] or len(left) == len(right) == shared // 8


def test_the_ends_of_two_calls_prompts_differ() -> None:
    texts = {prompt_text([], 100, 8, call=call)[:8] for call in range(1000)}
    assert len(texts) == 1000
