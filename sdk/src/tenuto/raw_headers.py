"""The header lists of httpx and httpx2, read and extended without a search for each name.

Their `Headers` look through all of theirs for every name they are asked for or given:
half of what a call of ours would cost. The list behind them, (name as written, lower-case
name, value) in bytes, is used where a trial shows it to be that, and the public way
elsewhere.
"""

from __future__ import annotations

import functools
from typing import Any

Raw = tuple[bytes, bytes, bytes]


def name(text: str | bytes) -> tuple[bytes, bytes]:
    """Return a header's name as written and in lower case."""
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return raw, raw.lower()


def found(headers: Any, names: frozenset[bytes]) -> dict[bytes, bytes]:
    """Return those of `names` (lower case) that `headers` has, with their last values."""
    if _is_known(headers.__class__):
        return {lower: value for _, lower, value in headers._list if lower in names}
    return {
        lower: headers[lower.decode()].encode("utf-8", "surrogatepass")
        for lower in names
        if lower.decode() in headers
    }


def value(headers: Any, lower: bytes) -> str | None:
    """Return the first value of the header called `lower`, None when there is none."""
    if not _is_known(headers.__class__):
        found: str | None = headers.get(lower.decode())
        return found
    values = [value for _, known, value in headers._list if known == lower]
    return values[0].decode("ascii", "replace") if values else None


def extend(headers: Any, items: list[Raw]) -> None:
    """Add headers whose names are known to be new."""
    if _is_known(headers.__class__):
        headers._list.extend(items)
    else:
        headers.update([(name.decode(), value.decode()) for name, _, value in items])


@functools.lru_cache(maxsize=16)
def _is_known(kind: Any) -> bool:
    try:
        trial = kind({"First": "1"})
        if trial._list != [(b"First", b"first", b"1")]:
            return False
        trial._list.append((b"Second", b"second", b"2"))
        return trial["second"] == "2" and list(trial.raw)[1:] == [(b"Second", b"2")]
    except Exception:
        return False
