"""Where each turn's uncached tokens and seconds went. Pure.

Tokens of a prompt that were computed, each counted once:

| part | is | reading |
| --- | --- | --- |
| unavoidable | prompt - reachable | no cache had them |
| placement | reachable - reachable on its rank | another rank's cache had them |
| retention | reachable on its rank - cached | this rank had them and let them go |

Seconds of a turn: queueing + prefill = time to the first token, and decode.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tenuto.compare.pairs import Floats, Pairs, Side

_MOST_BINS = 20
_TURNS_A_BIN = 10
_SAMPLES = 4
# Turns below this quantile of their like are taken to have waited for nothing.
_LOW = 0.2


@dataclass(frozen=True, slots=True)
class Tokens:
    """Uncached tokens by cause, repeats x turns; the causes are None where not known."""

    uncached: Floats
    unavoidable: Floats | None
    placement: Floats | None
    retention: Floats | None


@dataclass(frozen=True, slots=True)
class Seconds:
    """Seconds of each turn by what it did, repeats x turns.

    Attributes:
        queueing: waiting for the rank.
        prefill: computing the prompt.
        decode: first token to last.
        overhead_s: prefill without an uncached token, >= 0.
        s_per_uncached_token: slope of prefill over uncached tokens, >= 0.
    """

    queueing: Floats
    prefill: Floats
    decode: Floats
    overhead_s: float
    s_per_uncached_token: float


def token_parts(side: Side, *, block_size: int) -> Tokens:
    """Split uncached tokens by cause.

    A shortfall of up to a block on the rank that served is rounding, not retention: a
    server computes at least the last token again, and with it its block.
    """
    uncached = side.uncached_tokens
    if side.reachable_tokens is None or side.rank_reachable_tokens is None:
        return Tokens(uncached, None, None, None)
    on_rank = np.maximum(side.rank_reachable_tokens, side.cached_tokens)
    retention = on_rank - side.cached_tokens
    retention = np.where(retention <= block_size, 0.0, retention)
    placement = np.maximum(side.reachable_tokens - on_rank, 0.0)
    return Tokens(uncached, uncached - retention - placement, placement, retention)


def second_parts(pairs: Pairs) -> tuple[Seconds, Seconds, bool]:
    """Split both sides' turn times; the last value says whether queueing is estimated.

    It is known when every turn of both sides says it. Otherwise a floor is fitted to the
    time to the first token: an overhead and seconds per uncached token, see `_floors`. What is
    above that floor is queueing.
    """
    sides = (pairs.a, pairs.b)
    queues = [side.queue_s for side in sides]
    known = [queue for queue in queues if queue is not None]
    if len(known) == len(sides):
        parts = [
            (np.clip(queue, 0.0, side.ttft_s), side)
            for queue, side in zip(known, sides, strict=True)
        ]
        fits = [_fit(side.uncached_tokens, side.ttft_s - queue, 0.5) for queue, side in parts]
        made = [
            Seconds(queue, side.ttft_s - queue, side.decode_s, overhead_s, slope)
            for (queue, side), (overhead_s, slope) in zip(parts, fits, strict=True)
        ]
        return made[0], made[1], False
    overhead_s, *slopes = _floors(pairs.a, pairs.b)
    made: list[Seconds] = []
    for side, slope in zip(sides, slopes, strict=True):
        prefill = np.minimum(side.ttft_s, overhead_s + slope * side.uncached_tokens)
        made.append(Seconds(side.ttft_s - prefill, prefill, side.decode_s, overhead_s, slope))
    return made[0], made[1], True


def _floors(a: Side, b: Side) -> tuple[float, float, float]:
    """Return the overhead, and each side's seconds per uncached token.

    A wait can look like a slower prefill. So the sides have slopes of their own only when
    those of all samples of one side are above those of the other.
    """
    slopes = [
        [
            _fit(side.uncached_tokens[:, at::_SAMPLES], side.ttft_s[:, at::_SAMPLES], _LOW)[1]
            for at in range(min(_SAMPLES, side.start_s.shape[1]))
        ]
        for side in (a, b)
    ]
    left, right = slopes
    if min(right) > max(left) or min(left) > max(right):
        fits = [_fit(side.uncached_tokens, side.ttft_s, _LOW) for side in (a, b)]
        return min(fits[0][0], fits[1][0]), fits[0][1], fits[1][1]
    tokens = np.concatenate([a.uncached_tokens.ravel(), b.uncached_tokens.ravel()])
    overhead_s, slope = _fit(tokens, np.concatenate([a.ttft_s.ravel(), b.ttft_s.ravel()]), _LOW)
    return overhead_s, slope, slope


def _fit(tokens: Floats, seconds: Floats, quantile: float) -> tuple[float, float]:
    """Fit seconds = overhead + slope * tokens through a quantile of bins of like turns.

    The slope is the median of all pairs of bins', weighted by their distance (Theil-Sen),
    because a few very long prompts carry most of the tokens.
    """
    order = np.argsort(tokens, axis=None, kind="stable")
    bins = max(1, min(_MOST_BINS, len(order) // _TURNS_A_BIN))
    x = np.array([np.median(part) for part in np.array_split(tokens.ravel()[order], bins)])
    y = np.array(
        [np.quantile(part, quantile) for part in np.array_split(seconds.ravel()[order], bins)]
    )
    rows, columns = np.triu_indices(bins, k=1)
    distance = x[columns] - x[rows]
    apart = distance > 0
    if not apart.any():
        return float(y.min()), 0.0
    slopes = (y[columns] - y[rows])[apart] / distance[apart]
    by_slope = np.argsort(slopes)
    weight = np.cumsum(distance[apart][by_slope])
    slope = max(0.0, float(slopes[by_slope][np.searchsorted(weight, weight[-1] / 2)]))
    return max(0.0, float(np.median(y - slope * x))), slope
