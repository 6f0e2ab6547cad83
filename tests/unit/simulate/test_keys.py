from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.simulate.keys import Keys
from tenuto.trace import Turn
from tenuto.trace.runs import runs_of

PROMPTS = st.lists(
    st.tuples(st.lists(st.integers(0, 5), max_size=6), st.integers(0, 11)), min_size=2, max_size=6
)


def turn(ids: list[int], tail: int, size: int) -> Turn:
    return Turn(runs_of(ids), len(ids) * size + tail, 1, 0.0, 0.0)


def tokens(call: int, ids: list[int], tail: int, size: int) -> list[object]:
    """The prompt told naively: `size` tokens for each block, then filler of its own."""
    return [(one, n) for one in ids for n in range(size)] + [(call, "filler")] * tail


@pytest.mark.parametrize(("size", "engine_size"), [(4, 4), (4, 8), (4, 2), (4, 1), (2, 8)])
@given(prompts=PROMPTS)
def test_two_prompts_have_a_key_in_common_exactly_as_far_as_their_tokens(
    size: int, engine_size: int, prompts
):
    keys = Keys(size, engine_size)
    # A tail of a whole block or more is a recording's fault, and is followed all the same.
    made = [keys.of("trace", turn(ids, tail % size, size)).tolist() for ids, tail in prompts]
    told = [tokens(n, ids, tail % size, size) for n, (ids, tail) in enumerate(prompts)]
    for one, text in zip(made, told, strict=True):
        assert len(one) == len(text) // engine_size
        for other, other_text in zip(made, told, strict=True):
            for n in range(1, min(len(one), len(other)) + 1):
                same = text[: n * engine_size] == other_text[: n * engine_size]
                assert (one[n - 1] == other[n - 1]) == same


def test_ids_of_different_traces_are_different_blocks():
    keys = Keys(4, 4)
    one, other = (keys.of(space, turn([1, 2], 0, 4)).tolist() for space in "ab")
    assert not set(one) & set(other)


def test_keys_are_dense():
    keys = Keys(4, 4)
    made = [
        *keys.of("a", turn([10**15, 10**15 + 1], 0, 4)).tolist(),
        *keys.of("b", turn([5], 0, 4)).tolist(),
    ]
    assert sorted(made) == [0, 1, 2]


def test_block_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="engine's block size 6 is neither"):
        Keys(4, 6)
