"""Free blocks that can still be found, in the order in which they are evicted. Pure.

Blocks that a request gave back together are one batch, so that an eviction costs what it
takes, whatever else is held.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tenuto_vllm.retention import Held, Retention, Standing

# Heaps of what has gone are swept above this many and twice what there is.
_LEAST_SWEEP = 64


@dataclass(slots=True)
class Batch:
    """Blocks that were given back together.

    Attributes:
        slots: places of the blocks, in the order in which they go.
        held: what the policy knows of them.
        live: how many are still in it.
        at: how many of `slots` have been looked at.
    """

    slots: NDArray[np.int64]
    held: Held
    live: int
    at: int = 0


class Batches:
    """Batches by number, ascending by age. The oldest goes first.

    Attributes:
        of: the batches that have blocks, oldest first.
    """

    def __init__(self) -> None:
        self.of: OrderedDict[int, Batch] = OrderedDict()
        self._next = 0

    def add(self, batch: Batch) -> int:
        """Take in a batch and return its number."""
        number = self._next
        self._next += 1
        self.of[number] = batch
        return number

    def shrink(self, number: int, count: int) -> None:
        """Note that so many blocks of a batch have left it."""
        batch = self.of[number]
        batch.live -= count
        if not batch.live:
            del self.of[number]

    def change(self, number: int, held: Held) -> None:
        """Note that the policy is to know something else of a batch."""
        self.of[number].held = held

    def order(self, now_s: float) -> Iterator[int]:
        """Yield the batches in their order at a time, not before that of an earlier call.

        Each must be shrunk to nothing before the next is asked for.
        """
        del now_s
        while self.of:
            yield next(iter(self.of))


class _Keyed(Batches):
    """The least key goes first, then the oldest."""

    def __init__(self, standing: Callable[[Held, float], Standing]) -> None:
        super().__init__()
        self._standing = standing
        self._keys: dict[int, tuple[float, ...]] = {}
        # Both have entries of the past too: what counts is `of` and `_keys`.
        self._heap: list[tuple[tuple[float, ...], int]] = []
        self._until: list[tuple[float, int]] = []

    def add(self, batch: Batch) -> int:
        number = super().add(batch)
        heapq.heappush(self._until, (-math.inf, number))
        self._sweep()
        return number

    def shrink(self, number: int, count: int) -> None:
        super().shrink(number, count)
        if number not in self.of:
            self._keys.pop(number, None)

    def change(self, number: int, held: Held) -> None:
        super().change(number, held)
        heapq.heappush(self._until, (-math.inf, number))

    def order(self, now_s: float) -> Iterator[int]:
        self._renew(now_s)
        while self._heap:
            key, number = self._heap[0]
            if self._keys.get(number) == key:
                yield number
            else:
                heapq.heappop(self._heap)

    def _renew(self, now_s: float) -> None:
        passed: set[int] = set()
        while self._until and self._until[0][0] <= now_s:
            passed.add(heapq.heappop(self._until)[1])
        for number in passed:
            batch = self.of.get(number)
            if batch is None:
                continue
            key, until_s = self._standing(batch.held, now_s)
            if until_s < math.inf:
                heapq.heappush(self._until, (until_s, number))
            if self._keys.get(number) != key:
                self._keys[number] = key
                heapq.heappush(self._heap, (key, number))

    def _sweep(self) -> None:
        most = max(_LEAST_SWEEP, 2 * len(self.of))
        if len(self._heap) > most:
            self._heap = [(key, number) for number, key in self._keys.items()]
            heapq.heapify(self._heap)
        if len(self._until) > most:
            soonest: dict[int, float] = {}
            for until_s, number in self._until:
                if number in self.of:
                    soonest[number] = min(until_s, soonest.get(number, math.inf))
            self._until = [(until_s, number) for number, until_s in soonest.items()]
            heapq.heapify(self._until)


class _Segmented(Batches):
    """What was computed goes before what was found, while that has no more than its share."""

    def __init__(self, share_blocks: float) -> None:
        super().__init__()
        self._share_blocks = share_blocks
        self._found_blocks = 0
        self._computed: OrderedDict[int, None] = OrderedDict()
        self._found: OrderedDict[int, None] = OrderedDict()

    def add(self, batch: Batch) -> int:
        number = super().add(batch)
        if batch.held.was_hit:
            self._found[number] = None
            self._found_blocks += batch.live
        else:
            self._computed[number] = None
        return number

    def shrink(self, number: int, count: int) -> None:
        was_hit = self.of[number].held.was_hit
        super().shrink(number, count)
        if was_hit:
            self._found_blocks -= count
        if number not in self.of:
            del (self._found if was_hit else self._computed)[number]

    def order(self, now_s: float) -> Iterator[int]:
        over = self._found_blocks - self._share_blocks
        while self.of:
            found = next(iter(self._found), math.inf)
            computed = next(iter(self._computed), math.inf)
            if found < computed and (over > 0 or computed == math.inf):
                over -= self.of[int(found)].live
                yield int(found)
            else:
                yield int(computed)


def batches(retention: Retention, total: int) -> Batches:
    """Return an empty collection in a policy's order, for a pool of `total` blocks."""
    if retention.protected_share is not None:
        return _Segmented(retention.protected_share * total)
    return Batches() if retention.standing is None else _Keyed(retention.standing)
