"""Compare one run with a base. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from tenuto.compare.checks import header_reasons, missing_reason, turn_reasons
from tenuto.compare.decompose import Decomposition, decompose
from tenuto.compare.figures import figures
from tenuto.compare.judge import (
    ERRORS_MEASURED,
    ERRORS_MEASURED_ONCE,
    SHARE_MEASURED,
    SHARE_MEASURED_ONCE,
    SHARE_MODELLED,
    Judge,
)
from tenuto.compare.pairs import Pairs, pair
from tenuto.compare.values import CannotCompare, Cluster, Figure, Verdict
from tenuto.compare.verdict import verdict
from tenuto.results import Header, Results


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
    pairs = pair(a.turns, b.turns)
    if reason := missing_reason(pairs):
        raise CannotCompare((reason,))
    found |= turn_reasons(pairs)
    if refused := [line for field, line in found.items() if field not in allow]:
        raise CannotCompare(tuple(refused))
    if gpus is None and a.header.gpus == b.header.gpus:
        gpus = a.header.gpus
    is_modelled = _is_modelled(a.header) or _is_modelled(b.header)
    judge = _judge(a.header, b.header, pairs, rng)
    block_size = max(_block_size(a.header), _block_size(b.header))
    parts = decompose(pairs, judge, block_size=block_size)
    return Comparison(
        names=names or (a.header.name, b.header.name),
        headers=(a.header, b.header),
        pairs=pairs,
        resampled=judge.unit,
        clusters=judge.count,
        allowed=tuple(found.values()),
        notes=_notes(pairs, parts, is_modelled, gpus, gpu_usd_per_hour),
        figures=figures(
            pairs, judge, block_size=block_size, gpus=gpus, gpu_usd_per_hour=gpu_usd_per_hour
        ),
        parts=parts,
        verdict=verdict(parts, is_modelled=is_modelled),
    )


def _is_modelled(header: Header) -> bool:
    return header.clock == "virtual" or header.target in {"embedded", "simulator"}


def _judge(a: Header, b: Header, pairs: Pairs, rng: np.random.Generator) -> Judge:
    if a.clock == "virtual" and b.clock == "virtual":
        return Judge(pairs, rng, share=SHARE_MODELLED)
    if min(pairs.a.repeats, pairs.b.repeats) > 1:
        return Judge(pairs, rng, share=SHARE_MEASURED, errors=ERRORS_MEASURED)
    return Judge(pairs, rng, share=SHARE_MEASURED_ONCE, errors=ERRORS_MEASURED_ONCE)


def _block_size(header: Header) -> int:
    size = header.engine.get("block_size", 0)
    return size if isinstance(size, int) else 0


def _notes(
    pairs: Pairs,
    parts: Decomposition,
    is_modelled: bool,
    gpus: float | None,
    gpu_usd_per_hour: float | None,
) -> tuple[str, ...]:
    notes: list[str] = []
    if is_modelled:
        notes.append("times are modelled, not measured on a GPU: trust the tokens first")
    if min(pairs.a.repeats, pairs.b.repeats) < 2:
        notes.append(
            "one repeat: what equal runs of this machine differ by is not known, and figures "
            "of the whole run have no interval"
        )
    if pairs.left_out:
        notes.append(f"{pairs.left_out} of {pairs.total} turns are left out: missing or failed")
    if len(parts.tokens) == 1:
        notes.append(
            "uncached tokens cannot be split into placement and retention: the rank or the "
            "reachable tokens of some turns are not known"
        )
    if parts.queueing_is_estimated:
        notes.append(
            "queueing is estimated: the time to the first token above a fitted floor of "
            f"overhead + {parts.s_per_uncached_token * 1e6:.3g} µs per uncached token"
        )
    if gpus is None:
        notes.append("the number of GPUs is not known (--gpus): no figures per GPU")
    if gpu_usd_per_hour is None:
        notes.append("no price of a GPU-hour (--gpu-usd-per-hour): no cost")
    return tuple(notes)
