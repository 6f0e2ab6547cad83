"""What the formats with text share: canonical bytes of a message, moments in ISO 8601. Pure."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from tenuto.trace.event import MOST, MOST_TOKENS

_DIGITS = 20


def canonical(item: Any) -> bytes:
    """Return the bytes of a message: equal JSON gives equal bytes."""
    return json.dumps(item, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode(
        errors="surrogatepass"
    )


def seconds_of(moment: Any) -> float | None:
    """Return a moment as seconds since 1970: ISO 8601 (UTC where it has no zone), ns, or None."""
    try:
        is_int = isinstance(moment, int) and not isinstance(moment, bool)
        if is_int or (isinstance(moment, str) and moment.isdecimal()):
            at_s = int(moment) / 1e9
        elif isinstance(moment, str):
            read = datetime.fromisoformat(moment)
            at_s = (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
        else:
            return None
    except (ValueError, OverflowError):
        return None
    return at_s if abs(at_s) <= MOST else None


def count_of(value: Any) -> int | None:
    """Return a value as a count of tokens, None when it is none."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= _DIGITS:
        value = int(value)
    if isinstance(value, int | float) and 0 <= value <= MOST_TOKENS:
        return int(value)
    return None
