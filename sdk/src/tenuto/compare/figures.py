"""The figures of two runs: latencies, speed, hit rates, cost. Pure.

Definitions and their sources are in docs/comparing.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tenuto.compare.judge import Judge, Name
from tenuto.compare.pairs import Floats, Ints, Pairs, Side
from tenuto.compare.parts import token_parts
from tenuto.compare.values import Figure

_PERCENTILES = (0.5, 0.9, 0.99)
_SESSION_PERCENTILES = (0.5, 0.9)


def figures(
    pairs: Pairs,
    judge: Judge,
    *,
    block_size: int,
    gpus: float | None,
    gpu_usd_per_hour: float | None,
) -> tuple[Figure, ...]:
    """Return all figures; those per GPU and of cost only where their denominators are given.

    `block_size` is in tokens, 0 where it is not known.
    """
    return (
        *_latencies(pairs, judge),
        *_sessions(pairs, judge),
        *_runs(pairs, judge, gpus, gpu_usd_per_hour),
        *_interactivity(pairs, judge),
        *(_hits(pairs, judge) if pairs.knows_cached else ()),
        *(_short(pairs, judge, block_size) if pairs.knows_cached else ()),
    )


def _latencies(pairs: Pairs, judge: Judge) -> Iterator[Figure]:
    everything = np.arange(len(pairs.keys))
    yield from judge.percentiles(
        (pairs.a.ttft_s, pairs.b.ttft_s), everything, _named("ttft", "TTFT", _PERCENTILES)
    )
    several = _with_output(pairs, 2)
    if len(several):
        names = _named("itl", "inter-token latency", _PERCENTILES)
        yield from judge.percentiles(_itl(pairs, several), several, names)
    yield from judge.percentiles(
        (pairs.a.turn_s, pairs.b.turn_s), everything, _named("turn", "turn", _PERCENTILES)
    )


def _sessions(pairs: Pairs, judge: Judge) -> Iterator[Figure]:
    _, first = np.unique(pairs.session, return_index=True)
    if judge.unit == "turns":
        spans = [_spans(side, pairs.session) for side in (pairs.a, pairs.b)]
        for name, share in _named("session", "session", _SESSION_PERCENTILES):
            each = [np.quantile(span, share, axis=1) for span in spans]
            yield judge.of_runs(name, (each[0], each[1]))
        return
    spans = (_spans(pairs.a, pairs.session), _spans(pairs.b, pairs.session))
    yield from judge.percentiles(spans, first, _named("session", "session", _SESSION_PERCENTILES))


def _runs(
    pairs: Pairs, judge: Judge, gpus: float | None, gpu_usd_per_hour: float | None
) -> Iterator[Figure]:
    wall = [np.ptp(np.hstack([side.start_s, side.end_s]), axis=1) for side in (pairs.a, pairs.b)]
    wall = [np.maximum(one, 1e-9) for one in wall]
    yield judge.of_runs(Name("run_s", "run, first call to last answer", "s"), (wall[0], wall[1]))
    tokens = [(side.prompt_tokens + side.output_tokens).sum(axis=1) for side in (pairs.a, pairs.b)]
    per_s = [total / one for total, one in zip(tokens, wall, strict=True)]
    if gpus is None:
        name = Name("tokens_per_s", "total tokens per second", "tokens/s", "more")
        yield judge.of_runs(name, (per_s[0], per_s[1]))
        return
    name = Name("tokens_per_gpu_s", "total tokens per GPU-second", "tokens/s", "more")
    yield judge.of_runs(name, (per_s[0] / gpus, per_s[1] / gpus))
    if gpu_usd_per_hour is None:
        return
    spent = [one / 3600 * gpus * gpu_usd_per_hour for one in wall]
    output = [side.output_tokens.sum(axis=1) for side in (pairs.a, pairs.b)]
    for key, label, denominator in (
        ("usd_per_mtok_total", "USD per million total tokens", tokens),
        ("usd_per_mtok_output", "USD per million output tokens", output),
    ):
        each = [usd / np.maximum(one, 1) * 1e6 for usd, one in zip(spent, denominator, strict=True)]
        yield judge.of_runs(Name(key, label, "usd"), (each[0], each[1]))


def _interactivity(pairs: Pairs, judge: Judge) -> Iterator[Figure]:
    several, some = _with_output(pairs, 2), _with_output(pairs, 1)
    for key, label, of, values in (
        ("intvty", "interactivity, 1 / ITL", several, _itl(pairs, several)),
        ("e2e_intvty", "interactivity, 1 / (turn / output)", some, _normalised(pairs, some)),
    ):
        names = [
            (
                Name(
                    f"{key}_p{share * 100:.0f}", f"{label} p{share * 100:.0f}", "tokens/s", "more"
                ),
                share,
            )
            for share in (0.5, 0.9)
        ]
        if len(of):
            yield from judge.percentiles(values, of, names, inverse=True)


def _hits(pairs: Pairs, judge: Judge) -> Iterator[Figure]:
    def parts(side: Side) -> Floats:
        reachable = side.reachable_tokens
        bound = np.zeros_like(side.start_s) if reachable is None else reachable
        return np.stack([side.prompt_tokens, side.cached_tokens, bound])

    made = judge.totals((parts(pairs.a), parts(pairs.b)))
    points, drawn = made(lambda total: _ratio(total, 1, 0))
    # A percent of what is missed matters alike at 50 % and at 98 % of hits.
    name = Name("hit_rate", "hit rate, cached / prompt", "share", "more")
    yield judge.figure(name, points, drawn, scale=1 - points[0])
    if pairs.a.reachable_tokens is None or pairs.b.reachable_tokens is None:
        return
    points, drawn = made(lambda total: _ratio(total, 2, 0))
    name = Name("theoretical_hit_rate", "hit rate of caches without end", "share", "neither")
    yield judge.figure(name, points, drawn, scale=1 - points[0])
    points, drawn = made(lambda total: _ratio(total, 1, 2))
    name = Name("hit_of_theoretical", "cached / theoretically cached", "share", "more")
    yield judge.figure(name, points, drawn, scale=abs(1 - points[0]))


def _short(pairs: Pairs, judge: Judge, block_size: int) -> Iterator[Figure]:
    counted: list[Floats] = []
    for side in (pairs.a, pairs.b):
        parts = token_parts(side, block_size=block_size)
        if parts.placement is None or parts.retention is None:
            return
        short = (parts.placement > block_size) | (parts.retention > 0)
        counted.append(np.stack([short.astype(float), np.ones_like(side.start_s)]))
    made = judge.totals((counted[0], counted[1]))
    points, drawn = made(lambda total: _ratio(total, 0, 1))
    yield judge.figure(Name("turns_short", "turns that lost cache", "share"), points, drawn)


def _ratio(total: Floats, above: int, below: int) -> Floats:
    return total[..., above] / np.maximum(total[..., below], 1.0)


def _named(key: str, label: str, shares: tuple[float, ...]) -> list[tuple[Name, float]]:
    return [
        (Name(f"{key}_p{share * 100:.0f}_s", f"{label} p{share * 100:.0f}", "s"), share)
        for share in shares
    ]


def _with_output(pairs: Pairs, least: int) -> Ints:
    output = np.vstack([pairs.a.output_tokens, pairs.b.output_tokens])
    return (output.min(axis=0) >= least).nonzero()[0]


def _itl(pairs: Pairs, of: Ints) -> tuple[Floats, Floats]:
    a, b = (
        side.decode_s[:, of] / np.maximum(side.output_tokens[:, of] - 1, 1)
        for side in (pairs.a, pairs.b)
    )
    return a, b


def _normalised(pairs: Pairs, of: Ints) -> tuple[Floats, Floats]:
    a, b = (side.turn_s[:, of] / side.output_tokens[:, of] for side in (pairs.a, pairs.b))
    return a, b


def _spans(side: Side, session: Ints) -> Floats:
    """Return each session's first call to last answer, repeats x sessions."""
    count = int(session.max()) + 1
    first = np.full((side.repeats, count), np.inf)
    last = np.full((side.repeats, count), -np.inf)
    for repeat in range(side.repeats):
        np.minimum.at(first[repeat], session, side.start_s[repeat])
        np.maximum.at(last[repeat], session, side.end_s[repeat])
    return last - first
