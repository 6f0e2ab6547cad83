"""One rank's cache blocks: prefix lookup, references and vLLM's order of eviction. Pure."""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class BlockTable:
    """The blocks of one running request.

    Attributes:
        tokens: prompt, then output as it comes.
        blocks: block ids, in token order.
        hashes: hash of each full block of `tokens`, chained from the first.
        cached_tokens: prompt tokens that were found in the cache at admission.
        full: leading blocks that are registered in the cache.
        reserved: blocks promised to this request's output and not yet taken.
    """

    tokens: list[int]
    cached_tokens: int
    blocks: list[int] = field(default_factory=list[int])
    hashes: list[bytes] = field(default_factory=list[bytes])
    full: int = 0
    reserved: int = 0


class BlockPool:
    """A fixed number of blocks, shared by the requests of one rank.

    It follows vLLM 0.32's `BlockPool`: a cached block that nobody uses stays findable in
    the free queue until it is handed out again; freed blocks without a hash are reused
    first (last in, first out), hashed ones last (first in, first out, a request's tail
    before its head); equal blocks computed twice are both kept, and the older is found.

    It differs in one way: vLLM admits a request when its prompt fits and preempts when
    outputs outgrow the pool; here an output's blocks are promised at admission, so an
    admitted request always finishes. Promised blocks stay in the free queue, and findable,
    until they are needed.

    Args:
        num_blocks: blocks of the rank, >= 2. Block 0 is reserved, as vLLM's null block.
        block_size: tokens in a block, >= 1.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.total = num_blocks - 1
        self._references = [0] * num_blocks
        self._hash_of: list[bytes | None] = [None] * num_blocks
        # Dicts as ordered sets: the first block of a hash is the one that is found.
        self._cached: dict[bytes, dict[int, None]] = {}
        self._queue: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_blocks))
        self._promised = 0

    @property
    def free(self) -> int:
        """Blocks that no request uses; those still findable count as free."""
        return len(self._queue)

    @property
    def usage(self) -> float:
        """Share of the blocks in use, 0..1."""
        return 1.0 - self.free / self.total

    def queue(self) -> list[int]:
        """Return the free blocks in the order in which they will be handed out."""
        return list(self._queue)

    def blocks_for(self, prompt_tokens: int, output_tokens: int) -> int:
        """Return how many blocks a request holds at its end.

        The last output token is sampled but never computed, so it needs no place.
        """
        return -(-(prompt_tokens + max(output_tokens - 1, 0)) // self.block_size)

    def allocate(self, prompt: Sequence[int], output_tokens: int) -> BlockTable | None:
        """Take the blocks of a prompt, and a promise of those that its output will need.

        The last prompt token is always computed again, so at most
        `(len(prompt) - 1) // block_size` blocks come from the cache.

        Args:
            prompt: token ids in [0, 2**32), at least one.
            output_tokens: most output tokens that will be appended.

        Returns:
            The request's table, its prompt's full blocks registered in the cache; None,
            with nothing changed, while too few blocks are free.
        """
        hashes: list[bytes] = []
        self._extend(hashes, prompt)
        found = self._find(hashes, len(prompt))
        in_queue = sum(self._references[block] == 0 for block in found)
        fresh = self.blocks_for(len(prompt), 1) - len(found)
        growth = self.blocks_for(len(prompt), output_tokens) - len(found) - fresh
        if in_queue + fresh + growth > self.free - self._promised:
            return None
        for block in found:
            if self._references[block] == 0:
                del self._queue[block]
            self._references[block] += 1
        table = BlockTable(list(prompt), len(found) * self.block_size, found, hashes)
        table.full, table.reserved = len(found), growth
        self._promised += growth
        table.blocks += self._take(fresh)
        self._register(table, len(prompt))
        return table

    def append(self, table: BlockTable, output: Sequence[int]) -> None:
        """Add output tokens; blocks that have filled up are registered in the cache.

        The newest token is not computed yet: it fills its slot when the next one comes.
        """
        table.tokens += output
        self._extend(table.hashes, table.tokens)
        computed = len(table.tokens) - 1
        needed = -(-computed // self.block_size) - len(table.blocks)
        if needed > 0:
            table.blocks += self._take(needed)
            table.reserved -= needed
            self._promised -= needed
        self._register(table, computed)

    def release(self, table: BlockTable) -> None:
        """Give back everything that a request holds; once for each table."""
        self._promised -= table.reserved
        plain: list[int] = []
        for block in reversed(table.blocks):
            self._references[block] -= 1
            if self._references[block]:
                continue
            if self._hash_of[block] is None:
                plain.append(block)
            else:
                self._queue[block] = None
        # In front of the queue and in this order, whatever was appended meanwhile.
        for block in reversed(plain):
            self._queue[block] = None
            self._queue.move_to_end(block, last=False)
        table.blocks, table.reserved = [], 0

    def reset(self) -> bool:
        """Forget every cached block; refused (False) while any block is in use."""
        if self.free != self.total:
            return False
        self._cached.clear()
        self._hash_of = [None] * len(self._hash_of)
        return True

    def _extend(self, hashes: list[bytes], tokens: Sequence[int]) -> None:
        size = self.block_size
        for end in range((len(hashes) + 1) * size, len(tokens) + 1, size):
            parent = hashes[-1] if hashes else b""
            text = parent + array("I", tokens[end - size : end]).tobytes()
            hashes.append(hashlib.blake2b(text, digest_size=16).digest())

    def _find(self, hashes: Sequence[bytes], prompt_tokens: int) -> list[int]:
        found: list[int] = []
        for key in hashes[: (prompt_tokens - 1) // self.block_size]:
            if key not in self._cached:
                break
            found.append(next(iter(self._cached[key])))
        return found

    def _take(self, count: int) -> list[int]:
        taken = [self._queue.popitem(last=False)[0] for _ in range(count)]
        for block in taken:
            self._references[block] = 1
            key, self._hash_of[block] = self._hash_of[block], None
            if key is not None:
                same = self._cached[key]
                del same[block]
                if not same:
                    del self._cached[key]
        return taken

    def _register(self, table: BlockTable, computed: int) -> None:
        full = computed // self.block_size
        for index in range(table.full, full):
            block, key = table.blocks[index], table.hashes[index]
            self._hash_of[block] = key
            self._cached.setdefault(key, {})[block] = None
        table.full = max(table.full, full)
