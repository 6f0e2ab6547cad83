"""The words of a comparison: estimates, figures, the verdict. Frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Cause = Literal["placement", "retention", "cache", "queueing", "prefill", "decode"]
"""`cache` where the files do not say whether placement or retention lost the tokens."""

Unit = Literal["s", "tokens", "tokens/s", "share", "usd"]
Cluster = Literal["traces", "sessions", "turns"]


class CannotCompare(ValueError):
    """Two runs differ in what must be equal, or too little of them can be paired.

    Attributes:
        reasons: one line for each difference, with its field and where it is.
    """

    def __init__(self, reasons: tuple[str, ...]) -> None:
        super().__init__("\n".join(reasons))
        self.reasons = reasons


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % bootstrap interval; without one where nothing can be resampled."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of both sides.

    Attributes:
        key: name in JSON.
        label: name in tables.
        unit: of all its values.
        better: which way is an improvement.
        a: of the base.
        b: of the other run.
        difference: b - a, paired: the same resamples on both sides.
        floor: what |difference| must exceed to be claimed, from what equal runs show.
        is_different: whether a difference is claimed.
    """

    key: str
    label: str
    unit: Unit
    better: Literal["less", "more", "neither"]
    a: Estimate
    b: Estimate
    difference: Estimate
    floor: float
    is_different: bool

    @property
    def change(self) -> float | None:
        """The difference as a share of the base; None when the base is 0."""
        return self.difference.value / abs(self.a.value) if self.a.value else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What moved, in words and figures.

    Attributes:
        is_different: whether any part of the tokens or seconds is called different.
        cause: what is behind it; None when nothing is different.
        moved_most: which of the causes has the largest share by itself. It is another one
            than `cause` where a wait or a slower decode follows from more work.
        basis: whether shares are of the change in seconds or in tokens.
        shares: each cause's signed share of that change; they add up to 1.
        words: one or two sentences.
    """

    is_different: bool
    cause: Cause | None
    moved_most: Cause | None
    basis: Literal["seconds", "tokens"]
    shares: Mapping[str, float]
    words: str
