"""A file of whole lines: what is in it stays good whatever ends the process."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

try:
    import fcntl
except ImportError:
    # Windows: there a file never rotates.
    fcntl = None

_CLOSED_IN_CHILDREN = getattr(os, "O_CLOEXEC", 0)


class LineFile:
    """Appends lines, each by one write; a full file becomes `name.full-000001.suffix`, `…2`.

    The higher the number the later; the file itself is the latest. Several processes may
    append to one path.
    """

    def __init__(self, path: Path, max_bytes: int, files: int) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._files = files
        self._descriptor: int | None = None
        self._is_torn = False

    def append(self, line: bytes) -> None:
        """Write one line.

        Raises:
            OSError: it could not be written, or not whole.
        """
        descriptor = self._open()
        if self._is_torn:
            line = b"\n" + line
        written = os.write(descriptor, line + b"\n")
        self._is_torn = written <= len(line)
        if self._is_torn:
            raise OSError("the line was cut short")
        # The line is written: what hinders putting the file aside is tried again with the next.
        with contextlib.suppress(OSError):
            if fcntl is not None and os.fstat(descriptor).st_size >= self._max_bytes:
                self._rotate(descriptor)

    def open(self) -> None:
        """Open the file, which must be possible.

        Raises:
            OSError: it is not.
        """
        self._open()

    def close(self) -> None:
        """Close the file; another line opens it again."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        if self._descriptor is not None and not self._is_current(self._descriptor):
            # Another process has rotated it.
            self.close()
        if self._descriptor is None:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | _CLOSED_IN_CHILDREN
            self._descriptor = os.open(self.path, flags, 0o600)
            # What a process that was killed has left of its last line.
            self._is_torn = self.path.is_file() and _last_byte(self._descriptor) not in {b"", b"\n"}
        return self._descriptor

    def _is_current(self, descriptor: int) -> bool:
        try:
            mine, there = os.fstat(descriptor), self.path.stat()
        except OSError:
            return False
        return (mine.st_ino, mine.st_dev) == (there.st_ino, there.st_dev)

    def _rotate(self, descriptor: int) -> None:
        if fcntl is None or not self.path.is_file():
            return
        # Who has the lock of the file that is there is alone with its name and the next number.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            if not self._is_current(descriptor):
                return
            numbers = sorted(numbered(self.path))
            self.path.rename(_named(self.path, numbers[-1] + 1 if numbers else 1))
            for old in numbers[: len(numbers) + 1 - self._files]:
                _named(self.path, old).unlink(missing_ok=True)
        finally:
            # A forked child may still have the file open, and the lock with it.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            self.close()


def _last_byte(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    if not size:
        return b""
    os.lseek(descriptor, size - 1, os.SEEK_SET)
    return os.read(descriptor, 1)


def numbered(path: Path) -> list[int]:
    """Return the numbers of the full files of a path, in no order."""
    # A name that nobody else gives: the oldest of them are deleted.
    shape = re.compile(rf"{re.escape(path.stem)}\.full-([0-9]{{6,}}){re.escape(path.suffix)}")
    found = (shape.fullmatch(one.name) for one in path.parent.iterdir())
    return [int(match[1]) for match in found if match]


def _named(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}.full-{number:06d}{path.suffix}")
