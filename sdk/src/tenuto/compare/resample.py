"""Bootstrap by clusters and repeats. Pure: the generator is an argument.

A resample draws clusters (traces, sessions or turns) with replacement, and inside of it the
repeats. Both sides take the same draws, so that what they share cancels in the difference.
A turn's value is the median of its drawn repeats; since few distinct draws of repeats exist,
each is sorted once and serves all resamples that drew it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tenuto.compare.pairs import Floats, Ints

RESAMPLES = 2_000
_REPEAT_DRAWS = 24
_CHUNK = 64


@dataclass(frozen=True, slots=True)
class Draws:
    """What each resample holds.

    Attributes:
        label: each value's cluster.
        clusters: how often each cluster was drawn, resamples x clusters.
        which: for each resample the draw of repeats that it takes.
        repeats: for each side how often each repeat was drawn, draws x repeats.
    """

    label: Ints
    clusters: NDArray[np.int32]
    which: Ints
    repeats: tuple[Ints, Ints]


def draw(
    rng: np.random.Generator, label: Ints, repeats: tuple[int, int], resamples: int = RESAMPLES
) -> Draws:
    """Draw clusters and repeats. With equally many repeats both sides draw the same ones."""
    count = int(label.max()) + 1
    clusters = rng.multinomial(count, np.full(count, 1 / count), size=resamples)
    which = np.arange(resamples) % _REPEAT_DRAWS
    left = _repeats(rng, repeats[0])
    right = left if repeats[0] == repeats[1] else _repeats(rng, repeats[1])
    return Draws(label, clusters.astype(np.int32), which, (left, right))


def percentiles(values: Floats, draws: Draws, side: int, shares: Sequence[float]) -> Floats:
    """Return percentiles of turns' values in each resample.

    Args:
        values: repeats x turns.
        draws: what was drawn.
        side: 0 or 1.
        shares: which percentiles, 0..1.

    Returns:
        resamples x shares.
    """
    out = np.empty((len(draws.clusters), len(shares)))
    for which, times, of in _distinct(draws, side):
        drawn = np.median(np.repeat(values, times, axis=0), axis=0)
        order = np.argsort(drawn, kind="stable")
        ordered, label = drawn[order], draws.label[order]
        for at in range(0, len(which), _CHUNK):
            rows = which[at : at + _CHUNK]
            below = np.cumsum(draws.clusters[rows][:, label], axis=1, dtype=np.int32)
            for row, line in zip(rows, below, strict=True):
                wanted = np.maximum(1, np.ceil(np.multiply(shares, line[-1])))
                out[row] = ordered[np.minimum(np.searchsorted(line, wanted), of - 1)]
    return out


def sums(values: Floats, draws: Draws, side: int) -> Floats:
    """Return each resample's sums over turns of the mean over its repeats.

    Means, where percentiles take medians: only means of parts add up to the mean of a whole.

    Args:
        values: parts x repeats x turns.
        draws: what was drawn.
        side: 0 or 1.

    Returns:
        resamples x parts.
    """
    clusters = draws.clusters.shape[1]
    flat = values.reshape(-1, values.shape[-1])
    by_cluster = np.stack([np.bincount(draws.label, row, clusters) for row in flat])
    by_cluster = by_cluster.reshape(*values.shape[:2], clusters)
    repeats = draws.repeats[side][draws.which]
    weights = repeats / repeats.sum(axis=1, keepdims=True)
    drawn = np.einsum("prc,bc->bpr", by_cluster, draws.clusters, optimize=True)
    return np.einsum("bpr,br->bp", drawn, weights)


def interval(drawn: Floats, value: float, alpha: float = 0.05) -> tuple[float, float]:
    """Return the percentile interval of resampled values, widened to hold `value`."""
    low, high = np.quantile(drawn, (alpha / 2, 1 - alpha / 2))
    return min(float(low), value), max(float(high), value)


def _repeats(rng: np.random.Generator, repeats: int) -> Ints:
    return rng.multinomial(repeats, np.full(repeats, 1 / repeats), size=_REPEAT_DRAWS)


def _distinct(draws: Draws, side: int) -> list[tuple[Ints, Ints, int]]:
    """Return the distinct draws of repeats: whose resamples, how often each repeat, turns."""
    unique, inverse = np.unique(draws.repeats[side], axis=0, return_inverse=True)
    of_resample = inverse.reshape(-1)[draws.which]
    return [
        ((of_resample == number).nonzero()[0], times, len(draws.label))
        for number, times in enumerate(unique)
    ]
