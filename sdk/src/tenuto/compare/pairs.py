"""The turns that both runs have, side by side, as arrays. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tenuto.results import TurnResult

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Key = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Side:
    """What one run measured; every array is repeats x turns.

    The last four are None when a turn lacks the value.
    """

    prompt_tokens: Floats
    cached_tokens: Floats
    output_tokens: Floats
    start_s: Floats
    first_token_s: Floats
    end_s: Floats
    queue_s: Floats | None
    reachable_tokens: Floats | None
    rank_reachable_tokens: Floats | None
    rank: Floats | None

    @property
    def repeats(self) -> int:
        """How many times the traces were run."""
        return len(self.start_s)

    @property
    def ttft_s(self) -> Floats:
        """Seconds from a call to its first token."""
        return self.first_token_s - self.start_s

    @property
    def turn_s(self) -> Floats:
        """Seconds from a call to its last token."""
        return self.end_s - self.start_s

    @property
    def decode_s(self) -> Floats:
        """Seconds from the first token to the last."""
        return self.end_s - self.first_token_s

    @property
    def uncached_tokens(self) -> Floats:
        """Prompt tokens that were computed."""
        return self.prompt_tokens - self.cached_tokens


@dataclass(frozen=True, slots=True)
class Pairs:
    """Turns that every repeat of both sides answered.

    Attributes:
        keys: (trace, session, turn) of each, in order.
        trace: number of each turn's trace, from 0 without holes.
        session: the same of its session.
        a: the base.
        b: the other run.
        total: turns that any repeat has, or that the traces have where that is known.
        missing: how many of them each repeat lacks, by its name.
        knows_cached: both servers told the cached tokens.
    """

    keys: tuple[Key, ...]
    trace: Ints
    session: Ints
    a: Side
    b: Side
    total: int
    missing: tuple[tuple[str, int], ...]
    knows_cached: bool = True

    @property
    def left_out(self) -> int:
        """Turns that some repeat lacks."""
        return self.total - len(self.keys)


def pair(
    a: Sequence[TurnResult],
    b: Sequence[TurnResult],
    *,
    calls: Mapping[str, int] | None = None,
    knows_cached: bool = True,
) -> Pairs:
    """Pair the turns of two runs by (trace, session, turn); a failed turn is a missing one.

    A turn that stands twice in a repeat counts as it stands last. `calls` has how many calls
    a trace makes, so that those that neither run came to count as missing. Unless
    `knows_cached`, no side has cached tokens: what one server tells has no match.
    """
    left, right = _by_repeat(a), _by_repeat(b)
    everything = {(one.trace, one.session, one.turn) for run in (a, b) for one in run}
    total = (Counter(key[0] for key in everything) | Counter(calls or {})).total()
    repeats = [*left, *right]
    common = everything.intersection(*repeats) if left and right else set[Key]()
    keys = tuple(sorted(common))
    names = [
        f"repeat {number} of {side}"
        for side, run in (("A", left), ("B", right))
        for number in range(len(run))
    ]
    return Pairs(
        keys=keys,
        trace=_numbered([key[0] for key in keys]),
        session=_numbered([key[:2] for key in keys]),
        a=_side(left, keys, knows_cached=knows_cached),
        b=_side(right, keys, knows_cached=knows_cached),
        total=total,
        missing=tuple(
            (name, total - len(turns)) for name, turns in zip(names, repeats, strict=True)
        ),
        knows_cached=knows_cached,
    )


def _by_repeat(run: Sequence[TurnResult]) -> list[dict[Key, TurnResult]]:
    repeats: dict[int, dict[Key, TurnResult]] = {one.repeat: {} for one in run}
    for one in run:
        if one.error is None:
            repeats[one.repeat][one.trace, one.session, one.turn] = one
    return [repeats[number] for number in sorted(repeats)]


def _numbered(names: Sequence[Any]) -> Ints:
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def _side(
    repeats: Sequence[dict[Key, TurnResult]], keys: Sequence[Key], *, knows_cached: bool
) -> Side:
    turns = [[repeat[key] for key in keys] for repeat in repeats]

    def known(field: str) -> Floats:
        values = [[getattr(turn, field) for turn in repeat] for repeat in turns]
        return np.array(values, dtype=np.float64).reshape(len(repeats), len(keys))

    def maybe(field: str) -> Floats | None:
        values = known(field)  # None becomes not-a-number
        return None if np.isnan(values).any() else values

    return Side(
        prompt_tokens=known("prompt_tokens"),
        cached_tokens=known("cached_tokens") * knows_cached,
        output_tokens=known("output_tokens"),
        start_s=known("start_s"),
        first_token_s=known("first_token_s"),
        end_s=known("end_s"),
        queue_s=maybe("queue_s"),
        reachable_tokens=maybe("reachable_tokens"),
        rank_reachable_tokens=maybe("rank_reachable_tokens"),
        rank=maybe("rank"),
    )
