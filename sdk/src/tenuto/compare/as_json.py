"""A comparison as JSON values. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tenuto.compare.comparison import Comparison
from tenuto.compare.values import Figure


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return what `json.dumps` takes: figures and parts by key, and the verdict."""
    parts = comparison.parts
    return {
        "names": list(comparison.names),
        "resampled": comparison.resampled,
        "clusters": comparison.clusters,
        "repeats": [comparison.pairs.a.repeats, comparison.pairs.b.repeats],
        "paired_turns": len(comparison.pairs.keys),
        "left_out_turns": comparison.pairs.left_out,
        "allowed": list(comparison.allowed),
        "notes": list(comparison.notes),
        "verdict": asdict(comparison.verdict),
        "figures": _by_key(comparison.figures),
        "tokens": _by_key(parts.tokens),
        "seconds": _by_key([*parts.seconds, parts.speed]),
        "queueing_is_estimated": parts.queueing_is_estimated,
        "s_per_uncached_token": parts.s_per_uncached_token,
    }


def _by_key(figures: Sequence[Figure]) -> dict[str, Any]:
    return {figure.key: {**asdict(figure), "change": figure.change} for figure in figures}
