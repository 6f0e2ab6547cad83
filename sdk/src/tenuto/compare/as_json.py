"""A comparison as JSON values. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

from tenuto.compare.comparison import Comparison
from tenuto.compare.values import Figure


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return what `json.dumps` takes: figures and parts by key, and the verdict.

    JSON has no word for what is not finite, which becomes None.
    """
    parts = comparison.parts
    said = {
        "names": list(comparison.names),
        "resampled": comparison.resampled,
        "clusters": comparison.clusters,
        "repeats": [comparison.pairs.a.repeats, comparison.pairs.b.repeats],
        "paired_turns": len(comparison.pairs.keys),
        "left_out_turns": comparison.pairs.left_out,
        "allowed": list(comparison.allowed),
        "notes": list(comparison.notes),
        "verdict": asdict(comparison.verdict),
        "figures": _by_key([*comparison.figures, *([parts.moves] if parts.moves else [])]),
        "tokens": _by_key(parts.tokens),
        "seconds": _by_key([*parts.seconds, parts.speed]),
        "queueing_is_estimated": parts.queueing_is_estimated,
        "s_per_uncached_token": parts.s_per_uncached_token if parts.tokens else None,
    }
    return _finite(said)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_finite(one) for one in cast("list[Any]", value)]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _by_key(figures: Sequence[Figure]) -> dict[str, Any]:
    return {figure.key: {**asdict(figure), "change": figure.change} for figure in figures}
