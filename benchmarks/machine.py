"""What a figure was measured on."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime


def machine() -> str:
    """Return the kind of machine and the date, as a sentence without its full stop."""
    day = datetime.now(UTC).date().isoformat()
    kind = f"{os.cpu_count()} cores {platform.machine()}, {platform.system()}"
    return f"{kind}, Python {platform.python_version()}, {day}"
