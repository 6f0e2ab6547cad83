"""Settings of the extension: one table, read from the environment and from a file.

A field of `Settings` is set by the variable of its name in upper case behind `TENUTO_`, else by
the key of its name in the TOML file that `TENUTO_CONFIG` names. An empty text sets nothing.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

PREFIX = "TENUTO_"
CONFIG = "TENUTO_CONFIG"
MOST_SESSIONS = 32_768

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})


class ConfigError(ValueError):
    """A setting that cannot be used; the message names it, its value and what is allowed."""


class Kind(NamedTuple):
    """What the value of a setting may be.

    Attributes:
        read: makes a value of what a variable or a file gives; raises ValueError for another.
        allowed: what it takes, to go on after "it must be".
        is_secret: the value is never shown.
    """

    read: Callable[[object], Any]
    allowed: str
    is_secret: bool = False


def _switch(value: object) -> bool:
    said = str(value).lower()
    if said in _YES:
        return True
    if said in _NO:
        return False
    raise ValueError


def _like(pattern: str) -> Callable[[object], str]:
    allowed = re.compile(pattern)

    def read(value: object) -> str:
        if isinstance(value, str) and allowed.fullmatch(value):
            return value
        raise ValueError

    return read


def _count(value: object) -> int:
    return int(_like("0*[1-9][0-9]{0,8}")(str(value)))


def _share(value: object) -> float:
    said = str(value)
    # Others are numbers to Python alone: nan, 1_0, digits of other scripts.
    share = float(said) if re.fullmatch(r"[0-9]?\.?[0-9]{0,9}", said) else -1.0
    if 0.0 <= share <= 1.0:
        return share
    raise ValueError


def _level(value: object) -> str:
    return _like("info|debug")(str(value).lower())


def _path(value: object) -> Path:
    if isinstance(value, str) and (path := Path(value)).is_absolute():
        return path
    raise ValueError


_SWITCH = Kind(_switch, "1, true, yes or on, or 0, false, no or off")
_PATH = Kind(_path, "an absolute path")
_SHARE = Kind(_share, "a number from 0 to 1")
_KEY = Kind(_like(r"[\x21-\x7e]{16,256}"), "16 to 256 visible ASCII characters", is_secret=True)

TABLE: Mapping[str, Kind] = {
    "trust_rank": _SWITCH,
    "sessions": Kind(_count, "a whole number from 1 to 999999999"),
    "endpoint": Kind(_like("[A-Za-z0-9_-]{1,40}"), "at most 40 of the characters A-Z a-z 0-9 _ -"),
    "content": _SWITCH,
    "shadow": _SWITCH,
    "log": Kind(_level, "info or debug"),
    "state_dir": _PATH,
    "admin_key": _KEY,
    "admin_key_file": _PATH,
    "retention": _SWITCH,
    "lease_share": _SHARE,
    "tenant_share": _SHARE,
    "boundaries": _SWITCH,
    "decision_log": _PATH,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """How the extension behaves, with the defaults; docs/operations.md says what each means."""

    trust_rank: bool = False
    sessions: int = MOST_SESSIONS
    endpoint: str = ""
    content: bool = False
    shadow: bool = False
    log: str = ""
    state_dir: Path | None = None
    admin_key: str = field(default="", repr=False)
    admin_key_file: Path | None = None
    retention: bool = True
    lease_share: float = 0.9
    tenant_share: float = 0.9
    boundaries: bool = True
    decision_log: Path | None = None

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Settings:
        """Read the settings.

        Raises:
            ConfigError: one cannot be used, or the file of `TENUTO_CONFIG` cannot.
        """
        return read_settings(environ)[0]


def variable(key: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + key.upper()


def read_settings(environ: Mapping[str, str]) -> tuple[Settings, dict[str, str]]:
    """Read the settings, and say where each comes from.

    Returns:
        The settings, and by key `default`, the name of a variable or the path of the file.

    Raises:
        ConfigError: one cannot be used, or the file of `TENUTO_CONFIG` cannot.
    """
    values: dict[str, Any] = {}
    sources = dict.fromkeys(TABLE, "default")
    path = environ.get(CONFIG, "").strip()
    for key, value in _file(path).items() if path else ():
        if value != "":
            values[key] = _value(f"{key} in {path}", TABLE[key], value)
            sources[key] = path
    for key, kind in TABLE.items():
        text = environ.get(variable(key), "").strip()
        if text:
            values[key] = _value(variable(key), kind, text)
            sources[key] = variable(key)
    if (file := values.get("admin_key_file")) is not None:
        if "admin_key" in values:
            raise ConfigError(
                f"{variable('admin_key')} and {variable('admin_key_file')}, or their keys in a "
                "file, are both set; set one of them."
            )
        key = _text(file, f"{sources['admin_key_file']} names as the file of the admin key")
        values["admin_key"] = _value(f"The key in {file}", _KEY, key)
        sources["admin_key"] = str(file)
    return Settings(**values), sources


def shown(settings: Settings) -> dict[str, str | float]:
    """Return the settings in effect by key; of a secret or a path only whether there is one."""
    return {key: _shown(kind, getattr(settings, key)) for key, kind in TABLE.items()}


def _shown(kind: Kind, value: Any) -> str | float:
    return value is not None and value != "" if kind.is_secret or kind is _PATH else value


def _file(path: str) -> dict[str, Any]:
    text = _text(Path(path), f"{CONFIG} names")
    try:
        told = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}, which {CONFIG} names, is no TOML: {error}.") from error
    for key in told:
        if key not in TABLE:
            raise ConfigError(f"{key} in {path} is no setting; those are {', '.join(TABLE)}.")
    return told


def _text(path: Path, named: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise ConfigError(f"{path}, which {named}, cannot be read: {why}.") from error


def _value(name: str, kind: Kind, value: object) -> Any:
    try:
        return kind.read(value)
    except ValueError as error:
        problem = "cannot be used" if kind.is_secret else f"is {value!r:.100}"
        raise ConfigError(f"{name} {problem}; it must be {kind.allowed}.") from error
