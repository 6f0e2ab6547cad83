"""Whether a figure differs: intervals, and the floor that equal runs show. Pure.

A difference is claimed when all of these hold:

* zero lies outside of the bootstrap interval over clusters, widened for the number of
  figures that are judged (Bonferroni);
* zero lies outside of the same interval over stretches of time, because the noise of a
  machine lasts from one turn to the next, and then turns are not independent;
* it is larger than a share of the base, and than any difference between two repeats of one
  side. Measured without repeats, nothing shows how runs differ: then the share is three times
  as large;
* measured, it is several standard errors of both bootstraps, whose intervals are too narrow
  over few clusters;
* for a percentile, enough turns lie beyond it.

On the virtual clock equal runs are equal to the bit. There a difference above the share of the
base is one, except in what a fit leaves over; intervals say what other traces would show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from tenuto.compare.pairs import Floats, Ints, Pairs
from tenuto.compare.resample import RESAMPLES, Draws, draw, interval, percentiles, sums
from tenuto.compare.values import Cluster, Estimate, Figure, Unit

JUDGED_TOGETHER = 30
FEWEST_TURNS = 5
SHARE_MEASURED = 0.05
SHARE_MEASURED_ONCE = 0.15
ERRORS_MEASURED = 3.5
ERRORS_MEASURED_ONCE = 4.0
# Fewer turns beyond a percentile are single events, which no resampling tells from noise.
_TURNS_BEYOND = 5
SHARE_MODELLED = 0.01
# What sums of seconds are off by in 64 bits, and less than any unit shows.
_ROUNDING = 1e-6
_FEWEST_CLUSTERS = 8
_STRETCHES = 20
_TURNS_A_STRETCH = 12
_STRETCH_RESAMPLES = 600
# Two repeats agree in sign by chance too often to carry a claim about a whole run.
_REPEATS_FOR_A_RUN = 4


class Name(NamedTuple):
    """What a figure is called, and what of it is good."""

    key: str
    label: str
    unit: Unit
    better: Literal["less", "more", "neither"] = "less"


@dataclass(frozen=True, slots=True)
class Drawn:
    """One statistic of both sides: resampled by cluster, by stretch, and of each repeat."""

    clusters: tuple[Floats, Floats]
    stretches: tuple[Floats, Floats]
    repeats: tuple[Floats, Floats]


Statistic = Callable[[Draws, int], Floats]
"""Takes draws and a side; returns resamples x figures."""


class Judge:
    """Resamples one pair of runs, the same way for every figure."""

    def __init__(
        self,
        pairs: Pairs,
        rng: np.random.Generator,
        *,
        share: float,
        errors: float = 0.0,
        is_exact: bool = False,
    ) -> None:
        """Draw.

        Args:
            pairs: the turns.
            rng: where the draws come from.
            share: of the base that a difference must exceed.
            errors: standard errors that it must exceed.
            is_exact: equal runs are equal to the bit.
        """
        self._errors = errors
        self._is_exact = is_exact
        self._share = share
        self.unit: Cluster
        self.unit, label = _clusters(pairs)
        repeats = (pairs.a.repeats, pairs.b.repeats)
        self.draws = draw(rng, label, repeats, RESAMPLES)
        self.count = self.draws.clusters.shape[1]
        stretch = _stretches(pairs)
        self.stretches = draw(rng, stretch, repeats, _STRETCH_RESAMPLES)
        self._can_claim = self.stretches.clusters.shape[1] >= FEWEST_TURNS
        self._repeats = repeats

    def percentiles(
        self,
        values: tuple[Floats, Floats],
        of: Ints,
        names: Sequence[tuple[Name, float]],
        *,
        inverse: bool = False,
    ) -> list[Figure]:
        """Return figures that are percentiles of values of turns (or sessions).

        Args:
            values: of each side, repeats x values.
            of: for each value a turn whose cluster and stretch it shares.
            names: each figure with its percentile, 0..1.
            inverse: the figure is 1 / percentile.
        """
        shares = [share for _, share in names]

        def turned(found: Floats) -> Floats:
            return 1 / np.maximum(found, 1e-12) if inverse else found

        def drawn(draws: Draws) -> tuple[Floats, Floats]:
            part = Draws(draws.label[of], draws.clusters, draws.which, draws.repeats)
            both = (percentiles(values[side], part, side, shares) for side in (0, 1))
            left, right = both
            return turned(left), turned(right)

        clusters, stretches = drawn(self.draws), drawn(self.stretches)
        repeats = [turned(np.quantile(one, shares, axis=1)) for one in values]
        points = [turned(np.quantile(np.median(one, axis=0), shares)) for one in values]
        return [
            self.figure(
                name,
                (float(points[0][n]), float(points[1][n])),
                Drawn(
                    (clusters[0][:, n], clusters[1][:, n]),
                    (stretches[0][:, n], stretches[1][:, n]),
                    (repeats[0][n], repeats[1][n]),
                ),
                can_claim=(1 - share) * len(of) >= _TURNS_BEYOND,
            )
            for n, (name, share) in enumerate(names)
        ]

    def totals(
        self, values: tuple[Floats, Floats]
    ) -> Callable[[Callable[[Floats], Floats]], tuple[tuple[float, float], Drawn]]:
        """Return a function that gives a statistic of sums: its points and its draws.

        Args:
            values: of each side, parts x repeats x turns. The statistic takes sums,
                anything x parts, and returns one value for each of the first.
        """
        drawn = [
            tuple(sums(values[side], draws, side) for side in (0, 1))
            for draws in (self.draws, self.stretches)
        ]
        repeats = [one.sum(axis=2).T for one in values]

        def made(of: Callable[[Floats], Floats]) -> tuple[tuple[float, float], Drawn]:
            points = [float(of(one.mean(axis=0, keepdims=True))[0]) for one in repeats]
            cluster, stretch = ((of(both[0]), of(both[1])) for both in drawn)
            each = (of(repeats[0]), of(repeats[1]))
            return (points[0], points[1]), Drawn(cluster, stretch, each)

        return made

    def figure(
        self,
        name: Name,
        points: tuple[float, float],
        drawn: Drawn,
        *,
        scale: float | None = None,
        can_claim: bool = True,
        is_fitted: bool = False,
    ) -> Figure:
        """Judge one figure.

        Args:
            name: of the figure.
            points: its value on each side.
            drawn: its draws.
            scale: what the floor is a share of; by default the base's value.
            can_claim: there is enough behind it for a claim.
            is_fitted: it is what a fit leaves over, exact on no clock.
        """
        a, b = points
        value = b - a
        differences = drawn.clusters[1] - drawn.clusters[0]
        floor = self._floor(abs(a) if scale is None else scale, drawn.repeats)
        alpha = 0.05 / JUDGED_TOGETHER
        by_stretch = drawn.stretches[1] - drawn.stretches[0]
        error = max(float(differences.std()), float(by_stretch.std()))
        if self._is_exact and not is_fitted:
            is_different = abs(value) > floor
        else:
            is_different = (
                self._can_claim
                and can_claim
                and abs(value) > max(floor, self._errors * error)
                and _excludes_zero(differences, value, alpha)
                and _excludes_zero(by_stretch, value, alpha)
            )
        return Figure(
            name.key,
            name.label,
            name.unit,
            name.better,
            Estimate(a, *interval(drawn.clusters[0], a)),
            Estimate(b, *interval(drawn.clusters[1], b)),
            Estimate(value, *interval(differences, value)),
            floor,
            is_different,
        )

    def of_runs(self, name: Name, each: tuple[Floats, Floats]) -> Figure:
        """Judge a figure that a repeat has only as a whole, by its value in each repeat."""
        a, b = (float(np.median(one)) for one in each)
        value, floor = b - a, self._floor(abs(a), each)
        if min(self._repeats) < 2:
            only = (Estimate(a), Estimate(b), Estimate(value))
            is_different = self._is_exact and abs(value) > floor
            return Figure(name.key, name.label, name.unit, name.better, *only, floor, is_different)
        drawn = [
            np.array([np.median(np.repeat(one, times)) for times in self.draws.repeats[side]])
            for side, one in enumerate(each)
        ]
        differences = drawn[1] - drawn[0]
        return Figure(
            name.key,
            name.label,
            name.unit,
            name.better,
            Estimate(a, *interval(drawn[0], a)),
            Estimate(b, *interval(drawn[1], b)),
            Estimate(value, *interval(differences, value)),
            floor,
            min(self._repeats) >= _REPEATS_FOR_A_RUN
            and abs(value) > floor
            and _excludes_zero(differences, value, 0.0),
        )

    def _floor(self, scale: float, repeats: tuple[Floats, Floats]) -> float:
        between = (float(np.ptp(one)) for one in repeats)
        return max(self._share * scale, _ROUNDING, *between)


def _excludes_zero(drawn: Floats, value: float, alpha: float) -> bool:
    low, high = interval(drawn, value, alpha)
    return low > 0 or high < 0


def _clusters(pairs: Pairs) -> tuple[Cluster, Ints]:
    """Return what is resampled: traces when there are enough, else sessions, else turns."""
    if int(pairs.trace.max()) + 1 >= _FEWEST_CLUSTERS:
        return "traces", pairs.trace
    if int(pairs.session.max()) + 1 >= _FEWEST_CLUSTERS:
        return "sessions", pairs.session
    return "turns", np.arange(len(pairs.keys))


def _stretches(pairs: Pairs) -> Ints:
    """Number the stretches of the base's time, each with equally many turns."""
    started = (pairs.a.start_s - pairs.a.start_s.min(axis=1, keepdims=True)).mean(axis=0)
    count = len(started)
    wanted = max(FEWEST_TURNS, min(_STRETCHES, count // _TURNS_A_STRETCH))
    stretches = min(wanted, count)
    place = np.empty(count, dtype=np.int64)
    place[np.argsort(started, kind="stable")] = np.arange(count)
    return place * stretches // count
