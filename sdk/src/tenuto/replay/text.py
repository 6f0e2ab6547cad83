"""Block ids as prompts: text for one token a byte, token ids for every model. Pure."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator

# 64 visible ASCII characters: six bits of a block's number in each.
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_BITS = 6

# Not in the alphabet, so that a prompt's unnumbered end never looks like a block.
_FILLER = "."

LEAST_VOCAB = 4


@functools.lru_cache(maxsize=1 << 16)
def block_text(block_id: int, block_size: int, *, salt: str = "") -> str:
    """Return the text of one block: `block_size` visible ASCII characters.

    With one `salt` the mapping is one to one: equal ids give equal text, other ids
    other text, and ids below 64 ** n differ within their first n characters.

    Args:
        block_id: 0 <= block_id < 64 ** block_size.
        block_size: length in tokens, so in bytes, >= 1.
        salt: name of the space that the ids belong to; ids that are local to a trace
            take the trace's id, so that two traces share no text.

    Raises:
        ValueError: when the id has no text of its own in `block_size` characters.
    """
    return "".join(_ALPHABET[digit] for digit in _digits(block_id, block_size, _BITS, salt))


def prompt_text(
    runs: Iterable[tuple[int, int]],
    input_tokens: int,
    block_size: int,
    *,
    salt: str = "",
    call: int | None = None,
) -> str:
    """Return a prompt of `input_tokens` bytes: its blocks, then filler.

    Two prompts share the text of exactly the blocks that their ids share from the
    start on.

    Args:
        runs: block ids as runs (first, how many).
        input_tokens: length of the prompt, >= the blocks' length.
        block_size: tokens in a block.
        salt: see `block_text`.
        call: number of the call, written at the filler's start, so that the ends of two
            prompts are not taken for each other by a cache with smaller blocks.

    Raises:
        ValueError: when the blocks are longer than the prompt, or an id has no text.
    """
    ids = _ids(runs)
    tail = _tail(len(ids), input_tokens, block_size)
    blocks = "".join(block_text(block_id, block_size, salt=salt) for block_id in ids)
    return blocks + (_FILLER + ("" if call is None else f"{call}:")).ljust(tail, _FILLER)[:tail]


def prompt_tokens(
    runs: Iterable[tuple[int, int]],
    input_tokens: int,
    block_size: int,
    *,
    vocab: int,
    salt: str = "",
    call: int | None = None,
) -> list[int]:
    """Return a prompt as token ids, exact on every model; as `prompt_text` otherwise.

    Args:
        runs: see `prompt_text`.
        input_tokens: see `prompt_text`.
        block_size: see `prompt_text`.
        vocab: ids are below it and as high as can be, because models keep the lowest for
            themselves; >= 4.
        salt: see `block_text`.
        call: see `prompt_text`.

    Raises:
        ValueError: as `prompt_text` does, and when `vocab` is too small.
    """
    if vocab < LEAST_VOCAB:
        raise ValueError(f"a vocabulary of {vocab} tokens is too small; the least is {LEAST_VOCAB}")
    bits = (vocab - 1).bit_length() - 1
    lowest = vocab - (1 << bits)
    ids = _ids(runs)
    tail = _tail(len(ids), input_tokens, block_size)
    tokens = [
        token
        for block_id in ids
        for token in _block_tokens(block_id, block_size, bits, lowest, salt)
    ]
    filler = lowest - 1
    ending = [filler] if tail else []
    while call and len(ending) < tail:
        ending.append(lowest + (call & ((1 << bits) - 1)))
        call >>= bits
    return [*tokens, *ending, *[filler] * (tail - len(ending))]


def most_blocks(block_size: int, *, vocab: int | None = None) -> int:
    """Return how many blocks have a prompt of their own: as text, or in ids below `vocab`."""
    bits = _BITS if vocab is None else (max(vocab, LEAST_VOCAB) - 1).bit_length() - 1
    return 1 << (bits * block_size)


@functools.lru_cache(maxsize=1 << 15)
def _block_tokens(
    block_id: int, block_size: int, bits: int, lowest: int, salt: str
) -> tuple[int, ...]:
    return tuple(lowest + digit for digit in _digits(block_id, block_size, bits, salt))


def _digits(block_id: int, block_size: int, bits: int, salt: str) -> Iterator[int]:
    """Yield a block's number in digits of `bits` bits, the lowest first."""
    limit = 1 << (bits * block_size)
    if not 0 <= block_id < limit:
        message = f"block id {block_id} is not in [0, {1 << bits}**{block_size}); use larger blocks"
        raise ValueError(message)
    # Odd factors are invertible modulo a power of two: ids are shuffled, never merged.
    factor, shift = _permutation(salt, bits * block_size)
    number = (block_id * factor + shift) % limit
    mask = (1 << bits) - 1
    return (number >> (bits * place) & mask for place in range(block_size))


def _ids(runs: Iterable[tuple[int, int]]) -> list[int]:
    return [first + place for first, length in runs for place in range(length)]


def _tail(blocks: int, input_tokens: int, block_size: int) -> int:
    tail = input_tokens - blocks * block_size
    if tail < 0:
        message = (
            f"{blocks} blocks of {block_size} tokens are longer than a prompt of "
            f"{input_tokens} tokens"
        )
        raise ValueError(message)
    return tail


@functools.lru_cache(maxsize=64)
def _permutation(salt: str, bits: int) -> tuple[int, int]:
    length = bits // 8 + 1
    digest = hashlib.shake_256(salt.encode()).digest(2 * length)
    return int.from_bytes(digest[:length]) | 1, int.from_bytes(digest[length:])
