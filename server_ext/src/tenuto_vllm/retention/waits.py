"""How long sessions wait between their turns, learnt from what they did. Pure.

What is expected of a wait is a histogram over lengths that grow by a third of an octave: the
session's own last waits of that kind, and the fleet's with the weight of four of them, since a
session is known after a few turns. A gap that the client told is evidence with an error, and how
large the error is, is learnt from the waits that followed.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Mapping
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from tenuto_vllm.retention.held import Wait

LENGTHS_S: tuple[float, ...] = tuple(2.0 ** (step / 3) for step in range(31))
"""The lengths of waits that are told apart, 1 s to 1,024 s and longer."""

LEAST_LEASE_S = 10.0
"""A lease lasts at least so long, unless its session's gap was told."""

LEAST_TOLD_LEASE_S = 2.0
"""A lease lasts at least so long where the gap was told."""

MOST_LEASE_S = 600.0
"""No lease lasts longer: protection without an end is worse than none."""

# Medians of the Weka corpus; most waits are a tool's, so an unknown one is taken for that. They
# count as twenty waits that spread over a factor of e ** 1.3 to both sides.
_MEDIAN_S: Mapping[Wait, float] = {"tool": 9.0, "user": 300.0, "unknown": 9.0}
_SPREAD, _PRIOR_WAITS = 1.3, 20.0
# The fleet counts as so many of a session's own waits, of which each later one counts a tenth more.
_FLEET_WAITS, _FADING = 4.0, 0.9
# A wait says something of waits that are by this factor longer or shorter, too.
_OWN_SPREAD = 0.5
# A client knows its tools within a factor of two, until more is seen.
_ERROR, _ERROR_WAITS = 0.7, 20.0
_LEAST_ERROR, _MOST_ERROR = 0.1, 3.0
_ERROR_FADING = 0.99
_STEP = math.log(2.0) / 3


class Expectation(NamedTuple):
    """What is expected of a session's wait.

    Attributes:
        wait_s: its median.
        lasts_s: how long a lease of its blocks is worth having.
        spread: what speaks for a wait no longer than each of `LENGTHS_S`; ascending, the last is
            all there is.
    """

    wait_s: float
    lasts_s: float
    spread: tuple[float, ...] = ()


class Waits:
    """Learns waits of sessions and of the fleet, in memory that is bounded.

    Args:
        sessions: of how many something is remembered; what was heard of longest ago goes.
        window: last waits of the fleet that count, of each kind.
    """

    def __init__(self, sessions: int = 4096, window: int = 2048) -> None:
        self._most = sessions
        self._window = window
        self._last: dict[Wait, deque[int]] = {wait: deque() for wait in _MEDIAN_S}
        self._fleet = {
            wait: _shared_out(median_s, _SPREAD, _PRIOR_WAITS)
            for wait, median_s in _MEDIAN_S.items()
        }
        self._own: OrderedDict[str, dict[Wait, list[float]]] = OrderedDict()
        self._error = _ERROR * _ERROR * _ERROR_WAITS
        self._told = _ERROR_WAITS

    def __len__(self) -> int:
        """Return of how many sessions something is remembered."""
        return len(self._own)

    def learn(self, session: str, wait: Wait, seconds: float, told_s: float | None = None) -> None:
        """Take in a wait that has ended.

        Args:
            session: whose it was.
            wait: what ended it.
            seconds: how long it was.
            told_s: what its client had expected of it.
        """
        at = round(_place(seconds))
        fleet, last = self._fleet[wait], self._last[wait]
        fleet[at] += 1.0
        last.append(at)
        if len(last) > self._window:
            fleet[last.popleft()] -= 1.0
        kinds = self._own.setdefault(session, {})
        self._own.move_to_end(session)
        own, near = kinds.get(wait), _NEAR[at]
        kinds[wait] = (
            near
            if own is None
            else [old * _FADING + new for old, new in zip(own, near, strict=True)]
        )
        if len(self._own) > self._most:
            self._own.popitem(last=False)
        if told_s is not None:
            off = (_place(told_s) - _place(seconds)) * _STEP
            self._error = self._error * _ERROR_FADING + off * off
            self._told = self._told * _ERROR_FADING + 1.0

    def expect(self, session: str, wait: Wait, told_s: float | None = None) -> Expectation:
        """Return what is expected of a wait that begins.

        Args:
            session: whose it is.
            wait: what ends it.
            told_s: what its client expects; None where it said nothing.
        """
        share = _FLEET_WAITS / (_PRIOR_WAITS + len(self._last[wait]))
        own = self._own.get(session, {}).get(wait, _NOTHING)
        weights = [fleet * share + one for fleet, one in zip(self._fleet[wait], own, strict=True)]
        if told_s is not None:
            bell = _bell(round(_place(told_s)), round(self.error, 2))
            weights = [one * other for one, other in zip(weights, bell, strict=True)]
        spread = tuple(accumulate(weights))
        median_s = LENGTHS_S[bisect_left(spread, 0.5 * spread[-1])]
        late_s = LENGTHS_S[bisect_left(spread, 0.95 * spread[-1])]
        # What was told is late after its own error, what is guessed after twice the longest waits.
        if told_s is None:
            lasts_s = max(LEAST_LEASE_S, 2.0 * late_s)
        else:
            lasts_s = max(LEAST_TOLD_LEASE_S, late_s)
        return Expectation(median_s, min(lasts_s, MOST_LEASE_S), spread)

    @property
    def error(self) -> float:
        """Standard deviation of the logarithm of told to real waits."""
        return min(max(math.sqrt(self._error / self._told), _LEAST_ERROR), _MOST_ERROR)

    def forget(self, session: str) -> None:
        """Forget a session; what it taught of the fleet stays."""
        self._own.pop(session, None)


def _place(seconds: float) -> float:
    """Return where a wait stands among `LENGTHS_S`, 0 to 30, fractions too."""
    if seconds <= LENGTHS_S[0]:
        return 0.0
    return min(math.log(seconds) / _STEP, len(LENGTHS_S) - 1.0)


@lru_cache(4096)
def _bell(place: int, spread: float, count: int = len(LENGTHS_S)) -> tuple[float, ...]:
    """Return a normal curve of logarithms around a length, 1 at its top."""
    wide = spread / _STEP
    return tuple(math.exp(-0.5 * ((step - place) / wide) ** 2) for step in range(count))


def _shared_out(seconds: float, spread: float, total: float) -> list[float]:
    """Return a normal curve with a sum; the last length stands for all that are longer."""
    curve = _bell(round(_place(seconds)), spread, 3 * len(LENGTHS_S))
    last = len(LENGTHS_S) - 1
    folded = [*curve[:last], sum(curve[last:])]
    return [value * total / sum(folded) for value in folded]


_NEAR = [_shared_out(length_s, _OWN_SPREAD, 1.0) for length_s in LENGTHS_S]
_NOTHING = [0.0] * len(LENGTHS_S)
