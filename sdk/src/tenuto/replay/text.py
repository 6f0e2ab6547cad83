"""Block ids as text, for servers whose tokenizer gives one token for each byte. Pure."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

# 64 visible ASCII characters: six bits of a block's number in each.
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_BITS = 6

# Not in the alphabet, so that a prompt's unnumbered end never looks like a block.
_FILLER = "."


def block_text(block_id: int, block_size: int, *, salt: str = "") -> str:
    """Return the text of one block: `block_size` visible ASCII characters.

    With one `salt` the mapping is one to one: equal ids give equal text, other ids
    other text.

    Args:
        block_id: 0 <= block_id < 64 ** block_size.
        block_size: length in tokens, so in bytes, >= 1.
        salt: name of the space that the ids belong to; ids that are local to a trace
            take the trace's id, so that two traces share no text.

    Raises:
        ValueError: when the id has no text of its own in `block_size` characters.
    """
    limit = 1 << (_BITS * block_size)
    if not 0 <= block_id < limit:
        message = f"block id {block_id} is not in [0, 64**{block_size}); use larger blocks"
        raise ValueError(message)
    # Odd factors are invertible modulo a power of two: ids are shuffled, never merged.
    factor, shift = _permutation(salt, block_size)
    number = (block_id * factor + shift) % limit
    return "".join(
        _ALPHABET[number >> (_BITS * place) & (len(_ALPHABET) - 1)] for place in range(block_size)
    )


def prompt_text(
    block_ids: Sequence[int], input_tokens: int, block_size: int, *, salt: str = ""
) -> str:
    """Return a prompt of `input_tokens` bytes: its blocks, then filler.

    Two prompts share the text of exactly the blocks that their ids share from the
    start on.

    Raises:
        ValueError: when the blocks are longer than the prompt, or an id has no text.
    """
    tail = input_tokens - len(block_ids) * block_size
    if tail < 0:
        message = (
            f"{len(block_ids)} blocks of {block_size} tokens are longer than a prompt of "
            f"{input_tokens} tokens"
        )
        raise ValueError(message)
    blocks = [block_text(block_id, block_size, salt=salt) for block_id in block_ids]
    return "".join(blocks) + _FILLER * tail


@functools.lru_cache(maxsize=64)
def _permutation(salt: str, block_size: int) -> tuple[int, int]:
    length = block_size * _BITS // 8 + 1
    digest = hashlib.shake_256(salt.encode()).digest(2 * length)
    return int.from_bytes(digest[:length]) | 1, int.from_bytes(digest[length:])
