from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.trace import cut
from tenuto.trace.runs import ids_of

items = st.lists(st.binary(max_size=40), max_size=8)
sizes = st.integers(1, 16)


@given(items, sizes)
def test_a_prompt_has_one_id_for_each_full_block_and_one_run_at_most_for_each_item(
    prompt: list[bytes], block_bytes: int
) -> None:
    runs, total = cut(prompt, block_bytes=block_bytes)
    assert total == sum(map(len, prompt))
    assert len(ids_of(runs)) == total // block_bytes
    assert len(runs) <= len(prompt)
    assert all(0 <= first < 2**63 for first, _ in runs)
    assert len(set(ids_of(runs))) == total // block_bytes


@given(items, items, items, sizes)
def test_prompts_share_the_ids_of_the_items_that_they_begin_with_and_no_other(
    same: list[bytes], left: list[bytes], right: list[bytes], block_bytes: int
) -> None:
    ours, theirs = (
        ids_of(cut([*same, *left], block_bytes=block_bytes)[0]),
        ids_of(cut([*same, *right], block_bytes=block_bytes)[0]),
    )
    whole = sum(map(len, same)) // block_bytes
    assert ours[:whole] == theirs[:whole]
    if left and right and left[0] != right[0]:
        assert not set(ours[whole:]) & set(theirs[whole:])


@given(items, sizes)
def test_a_prompt_keeps_its_ids_when_it_grows(prompt: list[bytes], block_bytes: int) -> None:
    before, _ = cut(prompt, block_bytes=block_bytes)
    after, _ = cut([*prompt, b"next"], block_bytes=block_bytes)
    assert ids_of(after)[: len(ids_of(before))] == ids_of(before)


def test_items_are_told_from_their_concatenation() -> None:
    assert cut([b"ab" * 256])[0] != cut([b"a" * 1, b"ab" * 256])[0]
    assert cut([b"x" * 300, b"y" * 300])[0] != cut([b"x" * 301, b"y" * 299])[0]


def test_a_key_gives_other_ids() -> None:
    assert cut([b"x" * 300])[0] != cut([b"x" * 300], key=b"secret")[0]


def test_ids_are_the_same_in_every_process_and_release() -> None:
    # A trace file outlives the program that wrote it.
    assert cut([b"s" * 300, b"u" * 300]) == (
        ((4783406685580165120, 1), (2894816393105113088, 1)),
        600,
    )


@pytest.mark.parametrize("length", [0, 255])
def test_a_prompt_shorter_than_a_block_has_no_id(length: int) -> None:
    assert cut([os.urandom(length)]) == ((), length)
