"""How much of each prompt a cache without end would have had. Pure.

A tree of all prompts so far, in runs: an edge is a stretch of consecutive block ids that
every prompt which has any of it has all of, and knows to which ranks it was sent.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from tenuto.trace.model import Runs


@dataclass(slots=True)
class _Edge:
    length: int
    ranks: int = 0
    """A bit for each rank."""
    after: dict[int, _Edge] = field(default_factory=dict[int, "_Edge"])

    def split(self, first: int, at: int) -> None:
        """Cut the edge, which begins with the id `first`, after `at` blocks."""
        self.after = {first + at: _Edge(self.length - at, self.ranks, self.after)}
        self.length = at


class Reach:
    """Follows what has been sent where. Two prompts are equal as far as their leading ids are.

    The cost is that of the runs and of the places where prompts have parted, not of the blocks.

    Args:
        server_block_size: tokens in a block of the server's cache, which holds whole blocks
            only; None where it is the trace's.
    """

    def __init__(self, server_block_size: int | None = None) -> None:
        self._server_block_size = server_block_size
        self._roots: dict[Hashable, dict[int, _Edge]] = {}

    def sent(
        self, space: Hashable, runs: Runs, input_tokens: int, block_size: int, rank: int | None
    ) -> tuple[int, int | None]:
        """Note a call, in the order in which calls are sent, and say what was there before it.

        As vLLM does, the last token of a prompt is always computed.

        Args:
            space: where block ids mean the same, such as the index of a trace.
            runs: the prompt's block ids.
            input_tokens: length of the prompt.
            block_size: tokens in a block of `runs`.
            rank: that serves it, >= 0; None where that is not known.

        Returns:
            Tokens that the ranks together have been sent before, and that `rank` has.
        """
        size = self._server_block_size or block_size
        most = max(0, input_tokens - 1) // size
        bit = 0 if rank is None else 1 << rank
        blocks, rank_blocks = _walk(self._roots.setdefault(space, {}), runs, bit)
        reachable = min(blocks * block_size // size, most) * size
        if rank is None:
            return reachable, None
        return reachable, min(rank_blocks * block_size // size, most) * size


def _walk(edges: dict[int, _Edge], runs: Runs, bit: int) -> tuple[int, int]:
    blocks = rank_blocks = 0
    is_known_to_rank = True
    for start, count in runs:
        first, left = start, count
        while left:
            edge = edges.get(first)
            if edge is None:
                edge = edges[first] = _Edge(left)
                is_known_to_rank = False
            else:
                if left < edge.length:
                    edge.split(first, left)
                blocks += edge.length
            is_known_to_rank = is_known_to_rank and edge.ranks & bit != 0
            if is_known_to_rank:
                rank_blocks += edge.length
            edge.ranks |= bit
            first += edge.length
            left -= edge.length
            edges = edge.after
    return blocks, rank_blocks
