"""What moved between two runs, in tokens and in seconds, each part judged. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tenuto.compare.judge import Judge, Name
from tenuto.compare.pairs import Floats, Pairs
from tenuto.compare.parts import Seconds, Tokens, second_parts, token_parts
from tenuto.compare.values import Figure

# Of the time of all turns.
_MATTERS = 0.025


@dataclass(frozen=True, slots=True)
class Decomposition:
    """Sums over all paired turns, mean over repeats, so that parts add up to wholes.

    Attributes:
        tokens: uncached tokens, and their causes where the files tell them apart; none where
            a server does not tell its cached tokens.
        moves: share of the turns behind a first that met another rank than the one before in
            their session; None where the files do not tell ranks.
        seconds: turn time, and what it was spent on.
        speed: prefill beyond what its tokens cost at the speed of both sides together: moves
            only when a token takes longer.
        s_per_uncached_token: that speed; per prompt token where cached ones are not told.
        queueing_is_estimated: the files do not say it.
    """

    tokens: tuple[Figure, ...]
    moves: Figure | None
    seconds: tuple[Figure, ...]
    speed: Figure
    s_per_uncached_token: float
    queueing_is_estimated: bool


def decompose(pairs: Pairs, judge: Judge, *, block_size: int) -> Decomposition:
    """Split both sides.

    Args:
        pairs: the turns.
        judge: of the parts.
        block_size: tokens in a block of the server's cache; 0 where that is not known.
    """
    a, b, is_estimated = second_parts(pairs)
    tokens = [token_parts(side, block_size=block_size) for side in (pairs.a, pairs.b)]
    slope = (a.s_per_uncached_token + b.s_per_uncached_token) / 2
    tokens_made: tuple[Figure, ...] = ()
    if pairs.knows_cached:
        token_rows = _token_rows(tokens)
        token_names = [name for name, _ in token_rows]
        tokens_made = _judged(judge, token_names, _stacked([both for _, both in token_rows]))
    marked = ", estimated" if is_estimated else ""
    names = [
        Name("turn_s", "turns, start to end", "s"),
        Name("queueing_s", f"queueing{marked}", "s"),
        Name("prefill_s", f"prefill{marked}", "s"),
        Name("decode_s", "decode", "s"),
        Name("prefill_speed_s", "prefill beyond its tokens", "s"),
    ]
    rows = [_second_rows(*both, slope) for both in zip((a, b), tokens, strict=True)]
    made = _judged(judge, names, (rows[0], rows[1]), fitted="prefill_speed_s")
    speed = made[-1]
    # The rate is sharp enough to tell two runs apart, so only repeats show what it is worth.
    if min(pairs.a.repeats, pairs.b.repeats) > 1:
        speed = _with_rate(speed, _rate(judge, a, b, tokens, slope), made[0])
    moves = _moves(pairs, judge)
    return Decomposition(tokens_made, moves, made[:-1], speed, slope, is_estimated)


def _moves(pairs: Pairs, judge: Judge) -> Figure | None:
    follows = np.append(False, pairs.session[1:] == pairs.session[:-1])
    counted: list[Floats] = []
    for rank in (pairs.a.rank, pairs.b.rank):
        if rank is None:
            return None
        moved = follows & (rank != np.roll(rank, 1, axis=1))
        counted.append(np.stack([moved, np.broadcast_to(follows, rank.shape)]).astype(float))
    made = judge.totals((counted[0], counted[1]))
    points, drawn = made(lambda total: total[..., 0] / np.maximum(total[..., 1], 1.0))
    name = Name("turns_moved", "turns on another rank than the one before", "share", "neither")
    return judge.figure(name, points, drawn)


def _rate(judge: Judge, a: Seconds, b: Seconds, tokens: Sequence[Tokens], slope: float) -> Figure:
    """Judge the mean logarithm of prefill over what its tokens cost at one speed."""
    overhead_s = max((a.overhead_s + b.overhead_s) / 2, 1e-6)
    left, right = (
        np.log(np.maximum(parts.prefill, 1e-6) / (overhead_s + slope * of.uncached))
        for parts, of in zip((a, b), tokens, strict=True)
    )
    made = judge.totals(
        (np.stack([left, np.ones_like(left)]), np.stack([right, np.ones_like(right)]))
    )
    points, drawn = made(lambda total: total[..., 0] / np.maximum(total[..., 1], 1.0))
    return judge.figure(Name("prefill_rate", "logarithm", "share"), points, drawn, scale=1.0)


def _with_rate(speed: Figure, rate: Figure, turn: Figure) -> Figure:
    """Claim a change of speed by its rate as well.

    The seconds lie in the few turns that begin sessions, so their error is large; the rate
    has a value in every turn.
    """
    moved = speed.difference.value
    matters = abs(moved) > _MATTERS * abs(turn.a.value) and moved * rate.difference.value > 0
    return replace(speed, is_different=speed.is_different or (rate.is_different and matters))


def _second_rows(seconds: Seconds, tokens: Tokens, slope: float) -> Floats:
    queueing, prefill, decode = seconds.queueing, seconds.prefill, seconds.decode
    speed = prefill - slope * tokens.uncached
    return np.stack([queueing + prefill + decode, queueing, prefill, decode, speed])


def _token_rows(sides: Sequence[Tokens]) -> list[tuple[Name, list[Floats]]]:
    rows = [(Name("uncached", "uncached", "tokens"), [side.uncached for side in sides])]
    for key, label in (
        ("unavoidable", "unavoidable: no cache had them"),
        ("placement", "placement: on another rank"),
        ("retention", "retention: let go by the rank"),
    ):
        known = [values for side in sides if (values := getattr(side, key)) is not None]
        if len(known) == len(sides):
            rows.append((Name(key, label, "tokens"), known))
    return rows


def _stacked(rows: Sequence[Sequence[Floats]]) -> tuple[Floats, Floats]:
    return np.stack([both[0] for both in rows]), np.stack([both[1] for both in rows])


def _judged(
    judge: Judge, names: Sequence[Name], values: tuple[Floats, Floats], *, fitted: str = ""
) -> tuple[Figure, ...]:
    """Judge sums; the first is the whole, and a part must matter to it."""
    made = judge.totals(values)
    whole: float | None = None
    found: list[Figure] = []
    for number, name in enumerate(names):
        points, drawn = made(lambda total, at=number: total[..., at])
        whole = abs(points[0]) if whole is None else whole
        scale = max(abs(points[0]), whole / 2)
        is_fitted = name.key == fitted
        found.append(judge.figure(name, points, drawn, scale=scale, is_fitted=is_fitted))
    return tuple(found)
