"""Write a file whole or not at all; the same lines give the same bytes."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterable
from pathlib import Path


def write_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Write lines, through gzip when `path` ends in `.gz`, and name the file at the end.

    Raises:
        OSError: when it cannot be written.
    """
    partial = path.with_name(f"{path.name}.part")
    try:
        with partial.open("wb") as raw:
            if path.suffix == ".gz":
                # No name and no time stamp, so that equal content is an equal file.
                with gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
                    _put(packed, lines)
            else:
                _put(raw, lines)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _put(file: io.BufferedIOBase, lines: Iterable[bytes]) -> None:
    for line in lines:
        file.write(line)
        file.write(b"\n")
