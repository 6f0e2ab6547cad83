"""Blocks of bytes as blocks of tokens, of one size in every recording. Pure."""

from __future__ import annotations

import functools
import hashlib

from tenuto.trace.runs import Runs, merged

BLOCK_SIZE = 64
"""The block of the public agent traces, and a multiple of what servers have.

Recordings that were cut alike can be played together, whatever tokenizer each was made with.
"""

# 44 bits name what a prompt is up to a message's end and 19 number its blocks of tokens, so
# that an id is a positive 64-bit integer.
_NAME_BYTES = 8
_NAME_BITS = 44
_NUMBER_BITS = 19


def recut(runs: Runs, *, block_bytes: int, tokens_per_byte: float) -> Runs:
    """Return the ids of a prompt's blocks of `BLOCK_SIZE` tokens.

    A block of tokens is known when the block of bytes that holds its end is: prompts that have
    n blocks of bytes in common have `n * block_bytes * tokens_per_byte // BLOCK_SIZE` of tokens
    in common, and no other.

    Args:
        runs: ids of the prompt's blocks of bytes.
        block_bytes: >= 1.
        tokens_per_byte: of every prompt whose ids are to be compared with these, >= 0.
    """
    made: list[tuple[int, int]] = []
    count = done = 0
    for first, length in runs:
        # Ids count up from here in every prompt that has this message in this place.
        origin = first - count
        count += length
        reached = int(count * block_bytes * tokens_per_byte) // BLOCK_SIZE
        made.append(((_name(origin) << _NUMBER_BITS) + done, reached - done))
        done = reached
    return merged(made)


@functools.lru_cache(maxsize=1 << 16)
def _name(origin: int) -> int:
    digest = hashlib.blake2b(b"%d" % origin, digest_size=_NAME_BYTES).digest()
    return int.from_bytes(digest, "big") >> (8 * _NAME_BYTES - _NAME_BITS)
