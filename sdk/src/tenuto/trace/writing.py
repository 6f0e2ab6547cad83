"""Write a file whole or not at all; the same lines give the same bytes."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

_OPEN_FILES = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))
"""Where a file that this process has open is found by its number; not one to be replaced."""


def write_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Write lines, through gzip when `path` ends in `.gz`, and name the file at the end.

    What is no regular file, such as a pipe or `/dev/stdout`, is written to as it is; of a link
    the file that it leads to is written.

    Raises:
        OSError: when it cannot be written.
    """
    if path.exists() and (not path.is_file() or path.absolute().parent in _OPEN_FILES):
        with path.open("wb") as raw:
            _pack(raw, lines, is_packed=path.suffix == ".gz")
        return
    target = Path(os.path.realpath(path))
    partial = target.with_name(f"{target.name}.part")
    try:
        with partial.open("wb") as raw:
            _pack(raw, lines, is_packed=path.suffix == ".gz")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _pack(raw: BinaryIO, lines: Iterable[bytes], *, is_packed: bool) -> None:
    if not is_packed:
        _put(raw, lines)
        return
    # No name and no time stamp, so that equal content is an equal file.
    with gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        _put(packed, lines)


def _put(file: BinaryIO | gzip.GzipFile, lines: Iterable[bytes]) -> None:
    for line in lines:
        file.write(line)
        file.write(b"\n")
