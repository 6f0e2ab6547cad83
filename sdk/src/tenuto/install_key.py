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
import threading
import time
from pathlib import Path

MIN_KEY_BYTES = 16
# How long a reader waits for the process that is writing the key at that moment.
_READ_TRIES = 20
_READ_PAUSE_S = 0.01


_log = logging.getLogger("tenuto")


class _OneAtATime:
    lock = threading.RLock()

    @classmethod
    def renew(cls) -> None:
        cls.lock = threading.RLock()


# A lock that another thread holds at a fork stays locked in the child.
os.register_at_fork(after_in_child=_OneAtATime.renew)


def install_key() -> bytes:
    """Return the 32-byte key of this installation. Never raises."""
    if given := os.environ.get("TENUTO_KEY", "").strip():
        return _stretch(os.fsencode(given))
    return _key_from_file(_key_path())


def _key_path() -> Path | None:
    config = os.environ.get("XDG_CONFIG_HOME", "")
    try:
        if named := os.environ.get("TENUTO_KEY_FILE"):
            return Path(named).expanduser()
        # The XDG specification has relative paths ignored.
        base = Path(config) if Path(config).is_absolute() else Path.home() / ".config"
    except RuntimeError:
        return None
    return base / "tenuto" / "key"


def _key_from_file(path: Path | None) -> bytes:
    # One thread at a time, or each would make up its own where there is no file.
    with _OneAtATime.lock:
        return _remembered(path)


@functools.lru_cache(maxsize=16)
def _remembered(path: Path | None) -> bytes:
    try:
        if path is None:
            raise OSError("no home directory")
        if not path.exists():
            _create(path)
        raw = _read(path)
    except OSError as error:
        with contextlib.suppress(Exception):
            _log.warning(
                "no install key (%s): run ids are stable in this process only; "
                "set TENUTO_KEY to a secret shared by your processes",
                error,
            )
        return secrets.token_bytes(32)
    return _stretch(raw)


def _create(path: Path) -> None:
    """Write a new key so that two processes at their first use end with one key."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    _write_new(draft)
    try:
        # A link fails where another process was first; its key is then the key.
        os.link(draft, path)
    except FileExistsError:
        return
    except OSError:
        # Some file systems have no links; there a reader may meet the file still empty.
        with contextlib.suppress(FileExistsError):
            _write_new(path)
    finally:
        draft.unlink(missing_ok=True)


def _write_new(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_hex(32).encode())
    except OSError:
        # On a full disk an empty file would stand for the key for ever.
        path.unlink(missing_ok=True)
        raise


def _read(path: Path) -> bytes:
    # Reading a pipe or a device could last for ever.
    if not path.is_file():
        raise OSError(f"{path} is not a file")
    for _ in range(_READ_TRIES):
        raw = path.read_bytes().strip()
        if len(raw) >= MIN_KEY_BYTES:
            return raw
        time.sleep(_READ_PAUSE_S)
    raise OSError(f"{path} holds fewer than {MIN_KEY_BYTES} bytes")


def _stretch(raw: bytes) -> bytes:
    return hashlib.blake2b(raw, digest_size=32).digest()
