"""How long sessions wait between their turns, learnt from what they did. Pure.

A wait is taken for log-normal: of its logarithm a median and a spread are kept, for the fleet by
what ends the wait, and for each session how far its waits lie from those of the fleet.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import NamedTuple

from tenuto_vllm.retention.held import Wait

LEAST_LEASE_S = 10.0
"""A lease lasts at least so long, unless its session's gap was told."""

LEAST_TOLD_LEASE_S = 2.0
"""A lease lasts at least so long where the gap was told."""

MOST_LEASE_S = 600.0
"""No lease lasts longer: protection without an end is worse than none."""

# Medians of the Weka corpus; most waits are a tool's, so an unknown one is taken for that.
_MEDIAN_S: Mapping[Wait, float] = {"tool": 9.0, "user": 300.0, "unknown": 9.0}
_SHORTEST_S, _LONGEST_S = 0.05, 1e6


class Expectation(NamedTuple):
    """What is expected of a session's wait.

    Attributes:
        wait_s: its median.
        lasts_s: how long a lease of its blocks is worth having.
        spread: standard deviation of the logarithm of the wait.
    """

    wait_s: float
    lasts_s: float
    spread: float = 1.2


class _Window:
    """Moments of the last logarithms, with a prior of so many of them."""

    def __init__(self, mean: float, spread: float, size: int, prior: int) -> None:
        self._size = size
        self._seen: deque[float] = deque()
        self._prior = prior
        self._mean, self._square = mean, spread * spread + mean * mean
        self._sum = self._squares = 0.0

    def add(self, value: float) -> None:
        self._seen.append(value)
        self._sum += value
        self._squares += value * value
        if len(self._seen) > self._size:
            gone = self._seen.popleft()
            self._sum -= gone
            self._squares -= gone * gone

    @property
    def mean(self) -> float:
        count = len(self._seen) + self._prior
        return (self._sum + self._prior * self._mean) / count

    @property
    def variance(self) -> float:
        count = len(self._seen) + self._prior
        square = (self._squares + self._prior * self._square) / count
        return max(square - self.mean**2, 0.01)


class Waits:
    """Learns waits of sessions and of the fleet; memory is bounded.

    Args:
        sessions: of how many something is remembered; what was told of longest ago goes.
        window: waits of the fleet that count, of each kind.
    """

    def __init__(self, sessions: int = 8192, window: int = 512) -> None:
        self._most = sessions
        self._fleet = {
            wait: _Window(math.log(median_s), 1.2, window, 8)
            for wait, median_s in _MEDIAN_S.items()
        }
        # Of each session: how many waits, and the sum of their distances to the fleet's.
        self._own: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._error = _Window(0.0, 0.7, window, 8)

    def __len__(self) -> int:
        """Return of how many sessions something is remembered."""
        return len(self._own)

    def learn(self, session: str, wait: Wait, seconds: float, told_s: float | None = None) -> None:
        """Take in a wait that has ended.

        Args:
            session: whose it was.
            wait: what ended it.
            seconds: how long it was.
            told_s: what had been told of it.
        """
        value = _log(seconds)
        fleet = self._fleet[wait]
        count, total = self._own.pop(session, (0.0, 0.0))
        # Older waits count for less: a session is in phases.
        self._own[session] = (count * 0.9 + 1.0, total * 0.9 + value - fleet.mean)
        if len(self._own) > self._most:
            self._own.popitem(last=False)
        fleet.add(value)
        if told_s is not None:
            self._error.add(_log(told_s) - value)

    def expect(self, session: str, wait: Wait, told_s: float | None = None) -> Expectation:
        """Return what is expected of a wait that begins.

        Args:
            session: whose it is.
            wait: what ends it.
            told_s: what its client expects; None where it said nothing.
        """
        fleet = self._fleet[wait]
        mean, variance = fleet.mean, fleet.variance
        count, total = self._own.get(session, (0.0, 0.0))
        # A session's own distance, shrunk as if four waits had been as the fleet's.
        mean += total / (count + 4.0)
        if told_s is None:
            spread = math.sqrt(variance)
            wait_s = math.exp(mean)
            return Expectation(
                wait_s, _within(LEAST_LEASE_S, wait_s * math.exp(2.5 * spread)), spread
            )
        error = self._error.variance
        weight = variance / (variance + error)
        mean += weight * (_log(told_s) - mean)
        spread = math.sqrt(weight * error)
        wait_s = math.exp(mean)
        return Expectation(
            wait_s, _within(LEAST_TOLD_LEASE_S, wait_s * math.exp(2.5 * spread)), spread
        )

    def forget(self, session: str) -> None:
        """Forget a session; what it taught of the fleet stays."""
        self._own.pop(session, None)


def _log(seconds: float) -> float:
    return math.log(min(max(seconds, _SHORTEST_S), _LONGEST_S))


def _within(least_s: float, lasts_s: float) -> float:
    return min(max(least_s, lasts_s), MOST_LEASE_S)
