"""Two sides of one figure, measured interleaved in one process.

The machine's drift meets both alike; the figure is the median of the differences within pairs of
neighbours.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

Step = Callable[[], Any]


class Pairs:
    """Costs of two steps, run in turn."""

    def __init__(self) -> None:
        self._costs: tuple[list[float], list[float]] = ([], [])

    def measure(self, bare: Step, ours: Step, rounds: int) -> None:
        """Run both `rounds` times; each goes first in turn."""
        for i in range(rounds):
            for side in ((0, 1), (1, 0))[i % 2]:
                step = (bare, ours)[side]
                started = time.perf_counter_ns()
                step()
                self._costs[side].append((time.perf_counter_ns() - started) / 1000)

    async def measure_async(self, bare: Step, ours: Step, rounds: int) -> None:
        """Do the same with steps that return coroutines."""
        for i in range(rounds):
            for side in ((0, 1), (1, 0))[i % 2]:
                step = (bare, ours)[side]
                started = time.perf_counter_ns()
                await step()
                self._costs[side].append((time.perf_counter_ns() - started) / 1000)

    def medians(self) -> dict[str, float]:
        """Return the medians of both sides and of their differences, microseconds."""
        bare, ours = self._costs
        return {
            "bare_us": round(statistics.median(bare), 2),
            "ours_us": round(statistics.median(ours), 2),
            "extra_us": round(
                statistics.median([b - a for a, b in zip(bare, ours, strict=True)]), 2
            ),
        }


def finish(waiting: Any) -> None:
    """Run a coroutine that never has to wait, without the cost of an event loop."""
    try:
        waiting.send(None)
    except StopIteration:
        return
    raise RuntimeError("it waited")
