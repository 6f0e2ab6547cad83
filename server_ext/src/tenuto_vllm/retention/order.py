"""Whose blocks go first among sessions that wait. Pure.

| first to go | because |
|---|---|
| blocks that a later turn did not use | no prompt has them |
| sessions that said they are over | no turn is expected of them, though their client may be wrong |
| the lowest priority | its client said so |
| who is expected back last | while it is away its room serves the others longest |
| the youngest run | of equal ones: a stable working set does not thrash |
| sessions with a request that waits or runs | it is about to use them |

Expected is the median of what is left of a wait, given how long it has lasted: who was
expected by now and did not come goes back in the line the further, the longer it is away.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from tenuto_vllm.retention.waits import LENGTHS_S

# The order changes at ages that lie a quarter of an octave apart, so that little is sorted anew.
_STEPS_AN_OCTAVE = 4
_LEAST_AGE_S = 0.25
# Of a wait this unlikely to last longer nothing is known any more.
_NO_CHANCE = 1e-9


class Leased(NamedTuple):
    """What is known of a session that waits, or of a part of its blocks.

    Attributes:
        ended_s: when its turn ended.
        wait_s: median of the wait that is expected after it.
        lasts_s: how long the lease lasts.
        spread: as in `Expectation`; empty where no more than `wait_s` is known.
        born_s: when its run began.
        prio: the client's priority; higher stays longer.
        is_active: it has a request that waits or runs.
        is_final: its client said that it is over.
        is_superseded: a later turn did not use these blocks.
    """

    ended_s: float
    wait_s: float
    lasts_s: float = math.inf
    spread: tuple[float, ...] = ()
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
    if leased.is_superseded:
        return Standing((0.0, leased.ended_s))
    if leased.is_active:
        return Standing((3.0, leased.prio, leased.ended_s))
    if leased.is_final:
        return Standing((1.0, leased.ended_s))
    age_s, next_s = _stepped(now_s - leased.ended_s)
    where = (2.0, leased.prio, -left_s(age_s, leased.wait_s, leased.spread), -leased.born_s)
    return Standing(where, before(leased.ended_s + next_s))


def left_s(age_s: float, wait_s: float, spread: tuple[float, ...] = ()) -> float:
    """Return the median of what is left of a wait that has lasted for `age_s`.

    A wait that has lasted longer than any is expected to last as long again.
    """
    if not spread:
        return wait_s - age_s if age_s < wait_s else age_s
    first = bisect_right(LENGTHS_S, age_s)
    gone, whole = spread[first - 1] if first else 0.0, spread[-1]
    if whole - gone <= _NO_CHANCE * whole:
        return age_s
    middle = bisect_left(spread, 0.5 * (gone + whole), first)
    # The last length stands for all that are longer.
    return max(LENGTHS_S[middle] - age_s, age_s if middle == len(LENGTHS_S) - 1 else 0.0)


def before(time_s: float) -> float:
    """Return a time so little earlier that rounding cannot have passed `time_s`."""
    return time_s - 1e-12 * abs(time_s)


def _stepped(age_s: float) -> tuple[float, float]:
    """Return the ages at which the present step began and the next begins."""
    if age_s < _LEAST_AGE_S:
        return 0.0, _LEAST_AGE_S
    step = math.floor(math.log2(age_s / _LEAST_AGE_S) * _STEPS_AN_OCTAVE)
    began_s, next_s = (_LEAST_AGE_S * 2.0 ** (at / _STEPS_AN_OCTAVE) for at in (step, step + 1))
    return began_s, next_s
