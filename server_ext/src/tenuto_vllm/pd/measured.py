"""What prefills and transfers take here, from a file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, cast

from tenuto_vllm.config import ConfigError
from tenuto_vllm.placement.split import Costs
from tenuto_vllm.placement.split.fit import fit

_POINTS = "points"
_POINT = 3
_WHOLE = frozenset({"chunk_tokens"})
# What divides, or waits that are never over.
_ABOVE_ZERO = frozenset({"transfer_bytes_per_s", "chunk_tokens"})


def read_costs(path: Path | None, *, is_bidirectional: bool) -> Costs:
    """Return the costs of a file, the usual ones where it says nothing.

    Args:
        path: of a JSON object with fields of `Costs`, and with `points`, measured prefills, in
            place of the first three of them; None for no file.
        is_bidirectional: whether a prefill node fetches from a decode node.

    Raises:
        ConfigError: it cannot be read, or says something that is no cost.
    """
    told: Any = {}
    if path is not None:
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path} cannot be read: {type(error).__name__}.") from error
    if not isinstance(told, dict):
        raise ConfigError(f"{path} holds no JSON object.")
    fields = dict(cast("dict[str, Any]", told))
    points = fields.pop(_POINTS, None)
    known = set(Costs._fields) - {"is_bidirectional"}
    for name, value in fields.items():
        if name not in known:
            raise ConfigError(f"{name!r:.40} in {path} is none of {', '.join(sorted(known))}.")
        _check(name, value, path)
    if points is not None:
        if named := sorted(set(Costs._fields[:3]) & set(fields)):
            raise ConfigError(f"{path} says both points and {named[0]}, which they tell.")
        fields |= zip(Costs._fields[:3], _fitted(points, path), strict=True)
    return Costs(**{**fields, "is_bidirectional": is_bidirectional})


def _check(name: str, value: object, path: Path | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"{name} in {path} is no number.")
    if value < 0 or (value == 0 and name in _ABOVE_ZERO):
        raise ConfigError(f"{name} in {path} is too small.")
    if name in _WHOLE and not isinstance(value, int):
        raise ConfigError(f"{name} in {path} is no whole number.")


def _fitted(points: object, path: Path | None) -> tuple[float, float, float]:
    rows: list[tuple[int, int, float]] = []
    for point in cast("list[Any]", points) if isinstance(points, list) else [None]:
        row = cast("list[Any]", point) if isinstance(point, list) else []
        if [type(one) for one in row[:2]] != [int, int] or len(row) != _POINT:
            raise ConfigError(f"points in {path} are [tokens, cached tokens, seconds] each.")
        _check(_POINTS, row[2], path)
        rows.append((row[0], row[1], float(row[2])))
    try:
        return fit(rows)
    except ValueError as error:
        raise ConfigError(f"points in {path}: {error}.") from error
