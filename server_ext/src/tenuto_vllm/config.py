"""Settings of the extension, read once from the environment, with their defaults.

| variable | default | meaning |
|---|---|---|
| `TENUTO_TRUST_RANK` | `0` | `1`: a checked `X-data-parallel-rank` from outside decides, for a router in front that places ranks itself; otherwise it is stripped |
"""  # noqa: E501 - a table row

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_YES = frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True, slots=True)
class Settings:
    """How the middleware behaves."""

    trust_rank: bool = False

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Settings:
        """Read the settings; anything but a clear yes leaves a switch off."""
        return cls(trust_rank=environ.get("TENUTO_TRUST_RANK", "").strip().lower() in _YES)
