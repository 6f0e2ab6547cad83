"""The per-install secret that turns a user's ids into run ids.

It comes from, in this order: `TENUTO_KEY` in the environment; the file named by
`TENUTO_KEY_FILE`, else `tenuto/key` in the user's configuration folder, made private
at first use; and where neither can be had, a random key for this process. The last
keeps ids private and stable within the process, but another process derives others,
so it is warned of once.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import secrets
from pathlib import Path

MIN_KEY_BYTES = 16

_log = logging.getLogger("tenuto")


def install_key() -> bytes:
    """Return the 32-byte key of this installation. Never raises."""
    if given := os.environ.get("TENUTO_KEY"):
        return _stretch(os.fsencode(given))
    return _key_from_file(_key_path())


def _key_path() -> Path | None:
    if named := os.environ.get("TENUTO_KEY_FILE"):
        return Path(named)
    if config := os.environ.get("XDG_CONFIG_HOME"):
        return Path(config) / "tenuto" / "key"
    try:
        return Path.home() / ".config" / "tenuto" / "key"
    except RuntimeError:
        return None


@functools.lru_cache(maxsize=16)
def _key_from_file(path: Path | None) -> bytes:
    try:
        if path is None:
            raise OSError("no home directory")
        raw = (_read(path) or _create(path)).strip()
        if len(raw) < MIN_KEY_BYTES:
            raise OSError(f"{path} holds fewer than {MIN_KEY_BYTES} bytes")
    except OSError as error:
        _log.warning(
            "no install key (%s): run ids are stable in this process only; "
            "set TENUTO_KEY to a secret shared by your processes",
            error,
        )
        return secrets.token_bytes(32)
    return _stretch(raw)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _create(path: Path) -> bytes:
    """Write a new key so that two processes at their first use end with one key."""
    if path.exists():
        return b""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_hex(32).encode())
        # A link fails where another process was first; its key is then the key.
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
        return path.read_bytes()
    finally:
        draft.unlink()


def _stretch(raw: bytes) -> bytes:
    return hashlib.blake2b(raw, digest_size=32).digest()
