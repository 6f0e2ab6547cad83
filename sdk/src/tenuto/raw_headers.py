"""The header lists of httpx and httpx2, read and extended without a search for each name.

Their `Headers` look through all of theirs for every name they are asked for or given:
half of what a call of ours would cost. The list behind them, (name as written, lower-case
name, value) in bytes, is used where it is as known, and the public way where it is not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Raw = tuple[bytes, bytes, bytes]


def name(text: str | bytes) -> tuple[bytes, bytes]:
    """Return a header's name as written and in lower case."""
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return raw, raw.lower()


def present(headers: Any, names: frozenset[bytes]) -> set[bytes]:
    """Return those of `names` (lower case) that `headers` has."""
    try:
        return {lower for _, lower, _ in headers._list if lower in names}
    except (AttributeError, ValueError):
        return {lower for lower in names if lower.decode() in headers}


def value(headers: Any, lower: bytes) -> str | None:
    """Return the first value of the header called `lower`, None when there is none."""
    try:
        values = [value for _, known, value in headers._list if known == lower]
    except (AttributeError, ValueError):
        found: str | None = headers.get(lower.decode())
        return found
    return values[0].decode("ascii", "replace") if values else None


def extend(headers: Any, items: Iterable[Raw]) -> None:
    """Add headers whose names are known to be new."""
    try:
        headers._list.extend(items)
    except AttributeError:
        headers.update([(name.decode(), value.decode()) for name, _, value in items])
