"""What two runs must share to be compared. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tenuto.compare.pairs import Floats, Ints, Key, Pairs
from tenuto.results import Header

HEADER_FIELDS = (
    "seed",
    "identity",
    "mode",
    "time_scale",
    "gap_cap_s",
    "live_sessions",
    "concurrency",
    "max_output_tokens",
)
# How calls reach a server, which the virtual clock has none of.
SERVED_FIELDS = ("route", "cache_bust", "new_connections")
FIELDS = ("traces", *HEADER_FIELDS, *SERVED_FIELDS, "output_tokens", "prompt_tokens")
"""What `allow` can let pass."""

_NAMED = 3
_MOST_LEFT_OUT = 0.1


def header_reasons(a: Header, b: Header) -> dict[str, str]:
    """Return a line for each field of the headers that must be equal and is not."""
    found: dict[str, str] = {}
    if reason := _traces(a.traces, b.traces):
        found["traces"] = reason
    is_served = a.clock == "real" and b.clock == "real"
    for field in (*HEADER_FIELDS, *(SERVED_FIELDS if is_served else ())):
        left, right = getattr(a, field), getattr(b, field)
        if left != right:
            found[field] = f"{field}: {left!r} in A, {right!r} in B"
    return found


def turn_reasons(pairs: Pairs) -> dict[str, str]:
    """Return a line for each length that differs between paired turns, with the first three."""
    found: dict[str, str] = {}
    for field in ("output_tokens", "prompt_tokens"):
        left: Floats = getattr(pairs.a, field)
        right: Floats = getattr(pairs.b, field)
        differs = (left.min(0) != right.min(0)) | (left.max(0) != right.max(0))
        differs |= left.min(0) != left.max(0)
        where: Ints = differs.nonzero()[0]
        if len(where):
            first = [
                f"{_name(pairs.keys[n])} ({_range(left[:, n])} in A, {_range(right[:, n])} in B)"
                for n in map(int, where[:_NAMED])
            ]
            found[field] = f"{field}: {len(where)} of {len(pairs.keys)} turns, {_listed(first)}"
    return found


def missing_reason(pairs: Pairs) -> str | None:
    """Return why too few turns can be paired; None when enough can."""
    if pairs.keys and pairs.left_out <= _MOST_LEFT_OUT * pairs.total:
        return None
    where = ", ".join(f"{count} in {place}" for place, count in pairs.missing if count)
    return (
        f"turns: {pairs.left_out} of {pairs.total} are missing or failed in a repeat "
        f"({where or 'none measured'}); at most {_MOST_LEFT_OUT:.0%} may"
    )


def _traces(a: Mapping[str, str], b: Mapping[str, str]) -> str | None:
    differing = [name for name in {**a, **b} if a.get(name) != b.get(name)]
    if not differing:
        return None
    first = [f"{name} ({_side(name, a, b)})" for name in differing[:_NAMED]]
    return f"traces: {len(differing)} of {len({**a, **b})}, {_listed(first)}"


def _side(name: str, a: Mapping[str, str], b: Mapping[str, str]) -> str:
    if name not in b:
        return "only in A"
    return "only in B" if name not in a else f"digest {a[name][:8]}… in A, {b[name][:8]}… in B"


def _listed(first: Iterable[str]) -> str:
    return "first: " + ", ".join(first)


def _name(key: Key) -> str:
    return f"{key[0]}/{key[1]} turn {key[2]}"


def _range(values: Floats) -> str:
    given = sorted({int(value) for value in values.tolist()})
    return str(given[0]) if len(given) == 1 else f"{given[0]} to {given[-1]}"
