"""What a prefill takes, from measured ones: the three numbers of `Costs`. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

_LEAST = 3
# Of a column, what is left of it without those before; less is what the sums have lost.
_ALIKE = 1e-9


def fit(points: Sequence[tuple[int, int, float]]) -> tuple[float, float, float]:
    """Return `prefill_s`, `prefill_s_per_token` and `prefill_s_per_token2` that fit best.

    Least squares of each point's share of error, so that a short prefill counts as much as a
    long one, and none of the three below 0.

    Args:
        points: (tokens computed, tokens cached before them, seconds), measured on a node that
            did nothing else.

    Raises:
        ValueError: a number is out of range, or fewer than three points are different, or
            they are too much alike to tell the three numbers apart.
    """
    for new, cached, seconds in points:
        if new < 1 or cached < 0 or not 0 < seconds < math.inf:
            raise ValueError("a point is [tokens above 0, cached tokens, seconds above 0]")
    if len({(new, cached) for new, cached, _ in points}) < _LEAST:
        raise ValueError("three points or more must differ in their tokens")
    # Tokens by the thousand: of numbers of one size the sums keep their digits.
    columns = [
        [1.0 / seconds for _, _, seconds in points],
        [new / 1e3 / seconds for new, _, seconds in points],
        [new * (2 * cached + new) / 1e6 / seconds for new, cached, seconds in points],
    ]
    best, least = _solved(columns), math.inf
    if best is None:
        raise ValueError("the points are too much alike to tell the costs apart")
    # Of the fits without a number below 0 the best one is the best of some columns alone.
    for size in (3, 2, 1):
        for kept in combinations(range(3), size):
            found = _solved([columns[index] for index in kept])
            if found is None or min(found) < 0:
                continue
            fitted = [0.0, 0.0, 0.0]
            for index, value in zip(kept, found, strict=True):
                fitted[index] = value
            if (error := _error(columns, fitted)) < least:
                best, least = fitted, error
    return best[0], best[1] / 1e3, best[2] / 1e6


def _solved(columns: Sequence[Sequence[float]]) -> list[float] | None:
    """Return the weights of columns whose sum is nearest to 1 everywhere; None of alike ones."""
    units: list[list[float]] = []
    shares: list[list[float]] = []
    for column in columns:
        rest, share = [*column], list[float]()
        for unit in units:
            share.append(_dot(unit, rest))
            rest = [one - share[-1] * other for one, other in zip(rest, unit, strict=True)]
        length = math.sqrt(_dot(rest, rest))
        if length <= _ALIKE * math.sqrt(_dot(column, column)):
            return None
        units.append([one / length for one in rest])
        shares.append([*share, length])
    weights = [sum(unit) for unit in units]
    for index in reversed(range(len(weights))):
        weights[index] /= shares[index][index]
        for before in range(index):
            weights[before] -= weights[index] * shares[index][before]
    return weights


def _error(columns: Sequence[Sequence[float]], weights: Sequence[float]) -> float:
    rows = zip(*columns, strict=True)
    return sum((_dot(row, weights) - 1.0) ** 2 for row in rows)


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))
