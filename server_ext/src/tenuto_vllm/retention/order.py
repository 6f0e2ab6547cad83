"""Whose blocks go first among sessions that wait. Pure.

| first to go | because |
|---|---|
| superseded blocks | no prompt has them |
| ended sessions | the client said so, and may be wrong |
| low priority | the client said so |
| leases that have run out | who is so late most likely does not come back |
| who is expected back last | an early return would find the blocks of the others |
| the youngest run | a stable working set does not thrash |
| sessions with a request in the engine | they use their blocks at once |
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

# The order changes at ages that lie so far apart, so that it is seldom sorted anew.
_STEP = 2.0 ** (1 / 4)
_LEAST_AGE_S = 0.25
_NORMAL = NormalDist()


class Leased(NamedTuple):
    """What is known of a session that waits, or of a part of its blocks.

    Attributes:
        ended_s: when its turn ended.
        wait_s: median of the wait that is expected after it.
        lasts_s: how long the lease lasts.
        spread: standard deviation of the logarithm of the wait.
        born_s: when its run began.
        prio: the client's priority; higher stays longer.
        is_active: it has a request in the engine.
        is_final: its client said that it has ended.
        is_superseded: a later turn did not use these blocks.
    """

    ended_s: float
    wait_s: float
    lasts_s: float = math.inf
    spread: float = 1.2
    born_s: float = 0.0
    prio: int = 0
    is_active: bool = False
    is_final: bool = False
    is_superseded: bool = False


class Standing(NamedTuple):
    """Where blocks stand in the order of eviction at a time.

    Attributes:
        key: the least goes first; of equal ones what was given back first.
        until_s: it stays so before this time.
    """

    key: tuple[float, ...]
    until_s: float = math.inf


def key(leased: Leased, now_s: float) -> tuple[float, ...]:
    """Return where a session stands at a time: the least goes first."""
    return standing(leased, now_s).key


def standing(leased: Leased, now_s: float) -> Standing:
    """Return where a session stands at a time, and until when."""
    if leased.is_active or leased.is_superseded or leased.is_final:
        group = 2.0 * leased.is_active
        return Standing((group, not leased.is_superseded, leased.prio, leased.ended_s))
    age_s, next_s = _stepped(now_s - leased.ended_s)
    is_late = age_s >= leased.lasts_s
    left_s = remaining(age_s, leased.wait_s, leased.spread)
    where = (1.0, leased.prio, not is_late, -left_s, -leased.born_s)
    return Standing(where, leased.ended_s + next_s)


def remaining(age_s: float, wait_s: float, spread: float) -> float:
    """Return the median of what is left of a log-normal wait that has lasted for `age_s`."""
    if age_s <= 0.0:
        return wait_s
    z = math.log(age_s / wait_s) / spread
    outlived = 0.5 * math.erfc(z / math.sqrt(2.0))
    if outlived < 1e-12:
        return age_s
    return wait_s * math.exp(-spread * _NORMAL.inv_cdf(outlived / 2.0)) - age_s


def _stepped(age_s: float) -> tuple[float, float]:
    """Return the age at which the present step began, and the one at which the next begins."""
    if age_s < _LEAST_AGE_S:
        return 0.0, _LEAST_AGE_S
    step = math.floor(math.log(age_s / _LEAST_AGE_S) / math.log(_STEP))
    return _LEAST_AGE_S * _STEP**step, _LEAST_AGE_S * _STEP ** (step + 1)
