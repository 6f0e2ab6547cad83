"""Cut a prompt of which only the text is seen into blocks with ids. Pure.

The canonical bytes of a prompt are those of its items (system prompt, tools, each message),
one after another. Block j belongs to the item that holds its last byte, and the ids of an
item's blocks count up from a number that is a hash of all items up to and including this one:

| what two prompts share          | which of their ids are equal               |
|---------------------------------|--------------------------------------------|
| the first n items               | those of all blocks that end in them       |
| a part of an item               | none of that item's, and none after it     |
| an item behind different ones   | none of that item's                        |

So nothing has to be remembered, every process gives the same prompt the same ids, and a
prompt has at most one run for each item. With a key, ids do not give away whether a text is
a known one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from tenuto.trace.runs import Runs

BLOCK_BYTES = 256
"""About 64 tokens of English or code, the block of the public agent traces."""

# 47 bits name an item and 16 number its blocks, so that an id is a positive 64-bit integer.
_ITEM_BITS = 47
_NUMBER_BITS = 16


class Cut(NamedTuple):
    """A prompt that has been cut so far.

    Attributes:
        runs: ids of its full blocks.
        length: in bytes.
        chained: what the ids of the next item go on from.
    """

    runs: Runs = ()
    length: int = 0
    chained: bytes = bytes(16)


def cut(
    items: Sequence[bytes], *, key: bytes = b"", block_bytes: int = BLOCK_BYTES
) -> tuple[Runs, int]:
    """Return the ids of a prompt's full blocks, as runs, and its length in bytes.

    Args:
        items: canonical bytes of each item, in order; the same item must always give the same.
        key: of the hash, at most 64 bytes.
        block_bytes: length of a block, >= 1.
    """
    made = cut_on(Cut(), items, key=key, block_bytes=block_bytes)
    return made.runs, made.length


def cut_on(
    before: Cut, items: Sequence[bytes], *, key: bytes = b"", block_bytes: int = BLOCK_BYTES
) -> Cut:
    """Return a prompt with items behind what it had; arguments as of `cut`."""
    runs: list[tuple[int, int]] = []
    chained, total = before.chained, before.length
    for item in items:
        # What is before an item has one length, so no two chains can be confused.
        state = hashlib.blake2b(chained, digest_size=16, key=key)
        state.update(item)
        chained = state.digest()
        done = total // block_bytes
        total += len(item)
        count = total // block_bytes - done
        if count:
            name = int.from_bytes(chained[:6], "big") >> (48 - _ITEM_BITS)
            runs.append((name << _NUMBER_BITS, count))
    return Cut((*before.runs, *runs), total, chained)
