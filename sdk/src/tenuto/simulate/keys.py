"""Block ids of traces as the engine's keys: equal keys are equal prompts up to there. Pure.

A tree of prompts in runs: what two prompts share from the start on has one name, what stands
behind different beginnings has two, whatever the ids.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tenuto.trace import Turn

# Ids of what prompts have beyond their blocks, which a replay fills with text of its own.
_FILLER = -(1 << 62)
_MOST_FILLER = 1 << 32


@dataclass(slots=True)
class _Edge:
    key: int
    length: int
    after: dict[int, _Edge] = field(default_factory=dict[int, "_Edge"])


class Keys:
    """Names the blocks of prompts, densely from 0.

    Args:
        block_size: tokens in a block of the traces.
        engine_block_size: tokens in a block of the engine: a multiple or a divisor of it.

    Raises:
        ValueError: it is neither.
    """

    def __init__(self, block_size: int, engine_block_size: int) -> None:
        if block_size % engine_block_size and engine_block_size % block_size:
            raise ValueError(
                f"the engine's block size {engine_block_size} is neither a multiple nor a divisor "
                f"of the traces' {block_size}"
            )
        self._size = block_size
        self._engine_size = engine_block_size
        self._spaces: dict[str, dict[int, _Edge]] = {}
        self._next = 0
        self._fillers = 0

    def of(self, space: str, turn: Turn) -> NDArray[np.int64]:
        """Return the keys of the full blocks of a prompt, in the engine's block size.

        Args:
            space: where block ids mean the same.
            turn: whose prompt it is.
        """
        size, engine_size = self._size, self._engine_size
        # A tail that does not fill a block may still fill smaller ones of the engine.
        whole = -(-turn.input_tokens // size) if engine_size < size else turn.input_tokens // size
        runs = list(turn.blocks)
        if (beyond := whole - turn.block_count) > 0:
            runs.append((_FILLER + self._fillers * _MOST_FILLER, beyond))
            self._fillers += 1
        parts = self._walk(self._spaces.setdefault(space, {}), runs)
        keys = np.concatenate(parts) if parts else np.empty(0, np.int64)
        full = turn.input_tokens // engine_size
        if engine_size >= size:
            step = engine_size // size
            return keys[step - 1 :: step][:full]
        step = size // engine_size
        return (keys[:, None] * step + np.arange(step)).ravel()[:full]

    def _walk(
        self, edges: dict[int, _Edge], runs: list[tuple[int, int]]
    ) -> list[NDArray[np.int64]]:
        parts: list[NDArray[np.int64]] = []
        for start, count in runs:
            first, length = start, count
            while length:
                edge = edges.get(first)
                if edge is None:
                    edge = edges[first] = _Edge(self._next, length)
                    self._next += length
                elif length < edge.length:
                    below = _Edge(edge.key + length, edge.length - length, edge.after)
                    edge.length, edge.after = length, {first + length: below}
                parts.append(np.arange(edge.key, edge.key + edge.length, dtype=np.int64))
                first += edge.length
                length -= edge.length
                edges = edge.after
        return parts
