"""What the formats with text share: canonical bytes of a message, moments in ISO 8601. Pure."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any


def canonical(item: Any) -> bytes:
    """Return the bytes of a message: equal JSON gives equal bytes."""
    return json.dumps(item, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode(
        errors="surrogatepass"
    )


def seconds_of(moment: Any) -> float | None:
    """Return a moment as seconds since 1970: ISO 8601 (UTC where it has no zone), ns, or None."""
    if isinstance(moment, int) or (isinstance(moment, str) and moment.isdecimal()):
        return int(moment) / 1e9
    if not isinstance(moment, str):
        return None
    try:
        read = datetime.fromisoformat(moment)
    except ValueError:
        return None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
