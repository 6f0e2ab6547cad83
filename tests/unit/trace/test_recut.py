from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenuto.trace import cut
from tenuto.trace.recut import BLOCK_SIZE, recut
from tenuto.trace.runs import ids_of

items = st.lists(st.binary(max_size=400), max_size=6)
ratios = st.floats(0.01, 2.0)


def ids(prompt: list[bytes], block_bytes: int, ratio: float) -> tuple[list[int], list[int]]:
    runs, _ = cut(prompt, block_bytes=block_bytes)
    made = recut(runs, block_bytes=block_bytes, tokens_per_byte=ratio)
    return ids_of(runs), ids_of(made)


def common(left: list[int], right: list[int]) -> int:
    pairs = enumerate(zip(left, right, strict=False))
    shorter = min(len(left), len(right))
    return next((at for at, (ours, theirs) in pairs if ours != theirs), shorter)


@given(items, items, items, st.integers(16, 256), ratios)
def test_prompts_share_as_many_tokens_as_the_bytes_that_they_share_have(
    same: list[bytes], left: list[bytes], right: list[bytes], block_bytes: int, ratio: float
) -> None:
    our_bytes, ours = ids([*same, *left], block_bytes, ratio)
    their_bytes, theirs = ids([*same, *right], block_bytes, ratio)
    bytes_shared = common(our_bytes, their_bytes)
    shared = int(bytes_shared * block_bytes * ratio) // BLOCK_SIZE
    assert common(ours, theirs) == shared
    assert ours[:shared] == theirs[:shared]
    assert not set(ours[shared:]) & set(theirs[shared:])


@given(items, st.integers(16, 256), ratios)
def test_a_prompt_has_a_block_for_each_64_tokens_of_its_whole_blocks_of_bytes(
    prompt: list[bytes], block_bytes: int, ratio: float
) -> None:
    of_bytes, made = ids(prompt, block_bytes, ratio)
    assert len(made) == len(set(made)) == int(len(of_bytes) * block_bytes * ratio) // BLOCK_SIZE
    assert all(0 <= one < 2**63 for one in made)


def test_ids_are_the_same_in_every_process_and_release() -> None:
    made = recut(((1 << 40, 3), (1 << 50, 2)), block_bytes=256, tokens_per_byte=0.5)
    assert made == ((1977120475839463424, 6), (5659160240235479046, 4))
