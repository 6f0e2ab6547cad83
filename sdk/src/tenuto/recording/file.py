"""A file of whole lines: what is in it stays good whatever ends the process."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path


class LineFile:
    """Appends lines, each by one write; when it is full it becomes `name.1.suffix`, `name.2.…`.

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
        if os.fstat(descriptor).st_size >= self._max_bytes:
            self._rotate()

    def open(self) -> None:
        """Open the file, which must be possible.

        Raises:
            OSError: it is not.
        """
        self._open()

    def sync(self) -> None:
        """Have what is written survive a loss of power."""
        if self._descriptor is not None:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file; another line opens it again."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        if self._descriptor is not None and not self._is_current():
            # Another process has rotated it.
            self.close()
        if self._descriptor is None:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(self.path, flags, 0o600)
            size = os.fstat(self._descriptor).st_size
            # What a process that was killed has left of its last line.
            self._is_torn = bool(size) and os.pread(self._descriptor, 1, size - 1) != b"\n"
        return self._descriptor

    def _is_current(self) -> bool:
        assert self._descriptor is not None
        try:
            mine, there = os.fstat(self._descriptor), self.path.stat()
        except OSError:
            return False
        return (mine.st_ino, mine.st_dev) == (there.st_ino, there.st_dev)

    def _rotate(self) -> None:
        if not self._is_current():
            return
        numbers = sorted(numbered(self.path))
        number = numbers[-1] + 1 if numbers else 1
        self.path.rename(_named(self.path, number))
        self.close()
        for old in numbers[: len(numbers) + 1 - self._files]:
            _named(self.path, old).unlink(missing_ok=True)


def numbered(path: Path) -> list[int]:
    """Return the numbers of the full files of a path, in no order."""
    shape = re.compile(rf"{re.escape(path.stem)}\.([1-9][0-9]*){re.escape(path.suffix)}")
    found = (shape.fullmatch(one.name) for one in path.parent.iterdir())
    return [int(match[1]) for match in found if match]


def _named(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}.{number}{path.suffix}")
