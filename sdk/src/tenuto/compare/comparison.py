"""Compare one run with a base. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tenuto.compare.checks import header_reasons, missing_reason, turn_reasons
from tenuto.compare.decompose import Decomposition, decompose
from tenuto.compare.figures import figures
from tenuto.compare.judge import (
    ERRORS_MEASURED,
    ERRORS_MEASURED_ONCE,
    FEWEST_TURNS,
    SHARE_MEASURED,
    SHARE_MEASURED_ONCE,
    SHARE_MODELLED,
    Judge,
)
from tenuto.compare.pairs import Pairs, pair
from tenuto.compare.values import CannotCompare, Cluster, Figure, Verdict
from tenuto.compare.verdict import verdict
from tenuto.results import Header, Results, warm_turns

_REPEATS_ADVISED = 3
# Of any server, for those that do not say theirs.
_LARGEST_BLOCK = 256


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two runs of the same traces measured, and what moved.

    Attributes:
        names: of the base and the other run.
        headers: of both.
        pairs: the turns behind the figures.
        resampled: what the bootstrap drew, besides repeats.
        clusters: how many of them there are.
        allowed: differences that were let pass, one line each.
        notes: what to bear in mind, one line each.
        figures: of latency, speed, cache and cost.
        parts: the decomposition.
        verdict: what moved.
    """

    names: tuple[str, str]
    headers: tuple[Header, Header]
    pairs: Pairs
    resampled: Cluster
    clusters: int
    allowed: tuple[str, ...]
    notes: tuple[str, ...]
    figures: tuple[Figure, ...]
    parts: Decomposition
    verdict: Verdict


class _Times(NamedTuple):
    """What the times of two runs are worth.

    Attributes:
        are_modelled: of a side they come from a model.
        are_recorded: of a side they are the trace's, whatever a call finds in the cache.
        are_exact: the same runs would have the same again.
    """

    are_modelled: bool
    are_recorded: bool
    are_exact: bool


def compare(
    a: Results,
    b: Results,
    *,
    rng: np.random.Generator,
    names: tuple[str, str] | None = None,
    gpus: float | None = None,
    gpu_usd_per_hour: float | None = None,
    allow: Collection[str] = (),
) -> Comparison:
    """Compare `b` with the base `a`.

    Args:
        a: the base.
        b: the other run.
        rng: where the bootstrap's draws come from.
        names: of the sides; by default those in their headers.
        gpus: of the server, > 0; by default what both headers say.
        gpu_usd_per_hour: price of one GPU; without it no cost is given.
        allow: fields of `checks.FIELDS` in which the runs may differ.

    Raises:
        CannotCompare: they differ elsewhere, or more than 10 % of the turns are missing.
    """
    found = header_reasons(a.header, b.header)
    if refused := [line for field, line in found.items() if field not in allow]:
        raise CannotCompare(tuple(refused))
    pairs = pair(
        a.turns,
        b.turns,
        calls=Counter(a.header.calls) | Counter(b.header.calls),
        knows_cached=a.header.cached_known and b.header.cached_known,
    )
    if reason := missing_reason(pairs):
        raise CannotCompare((reason,))
    found |= turn_reasons(pairs)
    if refused := [line for field, line in found.items() if field not in allow]:
        raise CannotCompare(tuple(refused))
    if gpus is None and a.header.gpus == b.header.gpus:
        gpus = a.header.gpus
    times = _times(a.header, b.header)
    judge = _judge(times, pairs, rng)
    block_size = max(_block_size(a.header), _block_size(b.header))
    parts = decompose(pairs, judge, block_size=block_size)
    return Comparison(
        names=names or (a.header.name, b.header.name),
        headers=(a.header, b.header),
        pairs=pairs,
        resampled=judge.unit,
        clusters=judge.count,
        allowed=tuple(found.values()),
        notes=(
            *_warm_notes(a, b, block_size),
            *_notes(pairs, parts, times, gpus, gpu_usd_per_hour),
        ),
        figures=figures(
            pairs, judge, block_size=block_size, gpus=gpus, gpu_usd_per_hour=gpu_usd_per_hour
        ),
        parts=parts,
        verdict=verdict(
            parts,
            doubt=_doubt(times, pairs),
            is_modelled=times.are_modelled,
            is_recorded=times.are_recorded,
            is_exact=times.are_exact,
        ),
    )


def _is_modelled(header: Header) -> bool:
    return (
        header.clock == "virtual"
        or header.target in {"embedded", "simulator"}
        or header.engine.get("is_modelled") is True
    )


def _times(a: Header, b: Header) -> _Times:
    return _Times(
        are_modelled=_is_modelled(a) or _is_modelled(b),
        are_recorded="recorded" in (a.engine.get("service"), b.engine.get("service")),
        are_exact=a.clock == b.clock == "virtual",
    )


def _doubt(times: _Times, pairs: Pairs) -> str:
    """Return why nothing is claimed, where nothing is."""
    if times.are_exact:
        return f"nothing moved by more than {SHARE_MODELLED:.0%} of the base"
    if (turns := len(pairs.keys)) < FEWEST_TURNS:
        return f"of {turns} paired turns nothing is, the least is {FEWEST_TURNS}"
    repeats = min(pairs.a.repeats, pairs.b.repeats)
    if repeats < _REPEATS_ADVISED:
        told = "one repeat does" if repeats == 1 else f"{repeats} repeats do"
        advice = f"replay with --repeat {_REPEATS_ADVISED} or more"
        return f"{told} not show what equal runs differ by, {advice}"
    return "nothing moved beyond what equal runs show"


def _warm_notes(a: Results, b: Results, block_size: int) -> Iterator[str]:
    for side, run in (("A", a), ("B", b)):
        if warm := warm_turns(run.turns, block_size=block_size or _LARGEST_BLOCK):
            yield (
                f"{side} was not cold: {warm} calls found more in the cache than the run had put "
                "there. Restart the server or replay with --reset before believing a difference"
            )


def _judge(times: _Times, pairs: Pairs, rng: np.random.Generator) -> Judge:
    if times.are_exact:
        return Judge(pairs, rng, share=SHARE_MODELLED, is_exact=True)
    if min(pairs.a.repeats, pairs.b.repeats) > 1:
        return Judge(pairs, rng, share=SHARE_MEASURED, errors=ERRORS_MEASURED)
    return Judge(pairs, rng, share=SHARE_MEASURED_ONCE, errors=ERRORS_MEASURED_ONCE)


def _block_size(header: Header) -> int:
    size = header.engine.get("block_size", 0)
    return size if isinstance(size, int) and size > 0 else 0


def _notes(
    pairs: Pairs,
    parts: Decomposition,
    times: _Times,
    gpus: float | None,
    gpu_usd_per_hour: float | None,
) -> tuple[str, ...]:
    notes: list[str] = []
    if times.are_recorded:
        notes.append("times are the trace's, whatever a call found in the cache: trust the tokens")
    elif times.are_modelled:
        notes.append("times are modelled, not measured on a GPU: trust the tokens first")
    if min(pairs.a.repeats, pairs.b.repeats) < 2 and not times.are_exact:
        notes.append(
            "one repeat: what equal runs of this machine differ by is not known, and figures "
            "of the whole run have no interval"
        )
    if pairs.left_out:
        notes.append(f"{pairs.left_out} of {pairs.total} turns are left out: missing or failed")
    if not pairs.knows_cached:
        notes.append(
            "a server does not tell its cached tokens (vLLM does with "
            "--enable-prompt-tokens-details): no figures of the cache, and a longer prefill or "
            "wait may be a lost cache"
        )
    if len(parts.tokens) == 1:
        notes.append(
            "uncached tokens cannot be split into placement and retention: the rank or the "
            "reachable tokens of some turns are not known"
        )
    if parts.queueing_is_estimated:
        notes.append(
            "queueing is estimated: the time to the first token above a fitted floor of "
            f"overhead + {parts.s_per_uncached_token * 1e6:.3g} µs per "
            f"{'uncached' if pairs.knows_cached else 'prompt'} token"
        )
    if gpus is None:
        notes.append("the number of GPUs is not known (--gpus): no figures per GPU")
    if gpu_usd_per_hour is None:
        notes.append("no price of a GPU-hour (--gpu-usd-per-hour): no cost")
    return tuple(notes)
