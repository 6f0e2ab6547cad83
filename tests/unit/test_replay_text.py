from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.replay import block_text, prompt_text

sizes = st.sampled_from([1, 2, 4, 8, 16, 64, 512])
salts = st.text(max_size=8)


@given(st.data(), sizes, salts)
def test_a_block_is_exactly_its_size_in_visible_ascii_bytes(
    data: st.DataObject, size: int, salt: str
) -> None:
    text = block_text(data.draw(st.integers(0, 64**size - 1)), size, salt=salt)
    assert len(text.encode("ascii")) == size
    assert text.isprintable()
    assert not text.count(" ")


@given(st.data(), sizes, salts)
def test_two_ids_have_two_texts(data: st.DataObject, size: int, salt: str) -> None:
    ids = st.integers(0, 64**size - 1)
    one, other = data.draw(ids), data.draw(ids)
    same = block_text(one, size, salt=salt) == block_text(other, size, salt=salt)
    assert same == (one == other)


@pytest.mark.parametrize("size", [1, 2])
def test_no_id_of_a_small_block_collides_with_another(size: int) -> None:
    texts = {block_text(block_id, size, salt="t") for block_id in range(64**size)}
    assert len(texts) == 64**size


def test_the_text_of_a_block_never_changes() -> None:
    # Recorded results are compared over releases; other text would be other cache keys.
    assert block_text(1448, 8, salt="trace_0277") == "BTxl4Xy5"


@given(st.integers(0, 64**8 - 1))
def test_two_traces_do_not_share_the_text_of_an_id(block_id: int) -> None:
    assert block_text(block_id, 8, salt="trace_0001") != block_text(block_id, 8, salt="trace_0002")


@pytest.mark.parametrize("block_id", [-1, 64**2])
def test_an_id_without_a_text_of_its_own_is_refused(block_id: int) -> None:
    with pytest.raises(ValueError, match=r"not in \[0, 64\*\*2\)"):
        block_text(block_id, 2)


def common_length(pair: Sequence[Sequence[object]]) -> int:
    shorter = min(map(len, pair))
    return next((at for at in range(shorter) if pair[0][at] != pair[1][at]), shorter)


prompts = st.lists(st.integers(0, 3), max_size=6)


@given(prompts, prompts, st.integers(0, 7), st.integers(0, 7))
def test_two_prompts_share_the_text_of_the_blocks_that_they_share(
    left: list[int], right: list[int], left_tail: int, right_tail: int
) -> None:
    texts = [
        prompt_text([(one, 1) for one in ids], len(ids) * 8 + tail, 8)
        for ids, tail in ((left, left_tail), (right, right_tail))
    ]
    shared = common_length([left, right])
    assert [len(text) for text in texts] == [len(left) * 8 + left_tail, len(right) * 8 + right_tail]
    assert shared * 8 <= common_length(texts) < shared * 8 + 8


@given(prompts, prompts)
def test_one_text_is_a_prefix_of_another_where_its_ids_are(
    left: list[int], right: list[int]
) -> None:
    texts = [prompt_text([(one, 1) for one in ids], len(ids) * 8, 8) for ids in (left, right)]
    assert texts[1].startswith(texts[0]) == (right[: len(left)] == left)


def test_blocks_that_are_longer_than_the_prompt_are_refused() -> None:
    with pytest.raises(ValueError, match="2 blocks of 8 tokens are longer than a prompt of 15"):
        prompt_text([(1, 2)], 15, 8)
