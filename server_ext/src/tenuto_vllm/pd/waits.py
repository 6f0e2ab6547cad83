"""How long a stage of a hand-off is waited for. Pure."""

from __future__ import annotations

import math

_SURELY = 2.0
_GENEROUS = 4.0


def first_stage_s(
    expected_s: float, promise_s: float | None, *, least_s: float, most_s: float
) -> float:
    """Return how long a remote prefill is waited for, seconds.

    Four times what it is expected to take, or what the class of the turn promises; but no less
    than twice what is expected, which is work and no standstill.

    Args:
        expected_s: until it ends, what waits there included; infinite where nobody knows.
        promise_s: seconds to the first token; None for no promise.
        least_s: that it has in any case.
        most_s: that it has unless twice what is expected is more.
    """
    if math.isinf(expected_s):
        return max(least_s, most_s)
    wanted_s = min(_GENEROUS * expected_s, most_s, math.inf if promise_s is None else promise_s)
    return max(least_s, _SURELY * expected_s, wanted_s)
