"""How crowded a rank is, and whether a session should leave its home. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import inf

from tenuto_vllm.placement.rendezvous import by_hash

# What a rank has computed lately weighs more than what it holds: prefill is what a misplaced
# session costs. What it does now weighs as much, or a burst would follow an old imbalance.
COMPUTED_WEIGHT = 5.0
LOAD_WEIGHT = 5.0
# Of the mean crowding; ranks this near the least are alike, and the hash chooses.
NEAR = 0.02
HYSTERESIS = 2.0
LEAST_GAIN_S = 1.0
LEAST_STAY_S = 60.0
# Of the mean; a home that has computed so much more lets go of what is cheap to take elsewhere.
SURPLUS = 0.05


def crowding(
    loads: Sequence[float], live: Sequence[float], computed: Sequence[float]
) -> list[float]:
    """Return how crowded each rank is: parts of the mean, weighed and added up.

    Args:
        loads: requests on each rank now, shape (ranks,).
        live: tokens of the contexts at home there: the pressure on its cache.
        computed: tokens computed there lately.
    """
    count = len(loads)
    load = LOAD_WEIGHT * count / (sum(loads) + 1.0)
    context = count / (sum(live) + 1.0)
    prefill = COMPUTED_WEIGHT * count / (sum(computed) + 1.0)
    return [
        one * load + two * context + three * prefill
        for one, two, three in zip(loads, live, computed, strict=True)
    ]


def lightest(
    crowded: Sequence[float],
    session: str,
    home: int | None = None,
    closed: Collection[int] = (),
) -> int:
    """Return the least crowded rank; of those near it `home`, else the first by hash.

    None of `closed` is chosen, which are not all.
    """
    if closed:
        crowded = [inf if rank in closed else value for rank, value in enumerate(crowded)]
    least = min(crowded)
    most = least + NEAR * (1.0 + least)
    near = [rank for rank, value in enumerate(crowded) if value <= most]
    if home is not None and home in near:
        return home
    return near[0] if len(near) == 1 else by_hash(session, len(crowded), near)


def has_surplus(computed: Sequence[float], rank: int) -> bool:
    """Whether a rank has computed more than its share lately, shape (ranks,)."""
    return computed[rank] * len(computed) > (1.0 + SURPLUS) * sum(computed)


def pays_to_move(*, held_s: float, wait_s: float, least_wait_s: float) -> bool:
    """Whether a warm session should leave its home.

    Args:
        held_s: seconds to compute again what its home has cached.
        wait_s: expected wait at home.
        least_wait_s: expected wait on the best other rank.
    """
    return wait_s - least_wait_s > LEAST_GAIN_S + HYSTERESIS * held_s
