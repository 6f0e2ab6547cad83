"""Settings of the extension, read once from the environment, with their defaults.

| variable | default | meaning |
|---|---|---|
| `TENUTO_SESSIONS` | `32768` | sessions that one API process remembers, about 500 bytes each; none is needed |
| `TENUTO_TRUST_RANK` | `0` | `1`: a checked `X-data-parallel-rank` from outside decides, for a router in front that places ranks itself; otherwise it is stripped |
"""  # noqa: E501 - a table row

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MOST_SESSIONS = 32_768

_YES = frozenset({"1", "true", "yes", "on"})
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Settings:
    """How the middleware behaves."""

    trust_rank: bool = False
    sessions: int = MOST_SESSIONS

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Settings:
        """Read the settings; anything but a clear yes leaves a switch off.

        A number that is none, or below 1, is the default.
        """
        sessions = environ.get("TENUTO_SESSIONS", "").strip()
        is_number = sessions.isascii() and sessions.isdigit() and len(sessions) <= _DIGITS
        return cls(
            trust_rank=environ.get("TENUTO_TRUST_RANK", "").strip().lower() in _YES,
            sessions=(int(sessions) if is_number else 0) or MOST_SESSIONS,
        )
