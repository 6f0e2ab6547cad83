"""Settings by environment, read when they are first needed, with their defaults.

| variable | default | meaning |
|---|---|---|
| `TENUTO_DISABLED` | `0` | `1`: no request is marked |
| `TENUTO_DIALECT` | | the dialect of every client that is given none, such as `vllm` or `litellm,vllm-router` |
| `TENUTO_NEWS` | `1` | `0`: servers are told nothing after an answer |
| `TENUTO_STRICT` | `0` | `1`: an error of tenuto's own is raised instead of passed over, for tests |
| `TENUTO_CONTEXT` | | the session of a child process, written by `tenuto.environment` |
| `TENUTO_KEY`, `TENUTO_KEY_FILE` | | the install key, see `tenuto.install_key` |
"""  # noqa: E501 - a table row

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class Settings:
    """How the client behaves; a value that is not understood leaves the default."""

    disabled: bool = False
    dialect: str | None = None
    news: bool = True
    strict: bool = False

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Settings:
        """Read the settings; none of them can fail."""
        return cls(
            disabled=_said(environ, "TENUTO_DISABLED") in _YES,
            dialect=environ.get("TENUTO_DIALECT", "").strip() or None,
            news=_said(environ, "TENUTO_NEWS") not in _NO,
            strict=_said(environ, "TENUTO_STRICT") in _YES,
        )


def _said(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip().lower()
