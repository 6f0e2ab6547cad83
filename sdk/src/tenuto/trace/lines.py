"""Read the lines of a file, compressed or not, in bounded memory and past its faults."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple, cast

from tenuto.trace.problem import Problem, Tell

LINE_LIMIT = 64 << 20
DOCUMENT_LIMIT = 1 << 30
_HEAD_BYTES = 1 << 16
_SKIPPED_BYTES = 1 << 20


class Line(NamedTuple):
    """A line of a file.

    Attributes:
        number: in the file, from 1.
        data: without the end of the line; never empty.
        is_whole: its end was there. Only the last line of a file may be without.
    """

    number: int
    data: bytes
    is_whole: bool = True


def opened(path: Path) -> IO[bytes]:
    """Open a file for reading, through gzip when its first bytes say so."""
    with path.open("rb") as file:
        is_packed = file.read(2) == b"\x1f\x8b"
    return cast("IO[bytes]", gzip.open(path)) if is_packed else path.open("rb")


def head(path: Path) -> bytes:
    """Return the first 64 KiB of a file's text, as far as it can be read."""
    with opened(path) as file:
        try:
            return file.read(_HEAD_BYTES)
        except (OSError, EOFError, zlib.error):
            return b""


def lines(path: Path, tell: Tell, *, limit: int = LINE_LIMIT) -> Iterator[Line]:
    """Yield the lines that are not blank.

    A line over `limit` bytes is skipped without being held. A compressed file that ends early
    or is damaged is read up to the last line before that.
    """
    number = 0
    with opened(path) as file:
        try:
            while data := file.readline(limit + 1):
                number += 1
                is_whole = data.endswith(b"\n")
                if not is_whole and len(data) > limit:
                    while (data := file.readline(_SKIPPED_BYTES)) and not data.endswith(b"\n"):
                        pass
                    what = f"line is longer than {limit >> 20} MiB; left out"
                    tell(Problem(number, what, path.name))
                elif text := data.strip():
                    yield Line(number, text, is_whole)
        except (OSError, EOFError, zlib.error) as error:
            what = f"the compressed file cannot be read further ({error}); the rest is left out"
            tell(Problem(number + 1, what, path.name))


def documents(path: Path, tell: Tell, *, limit: int = LINE_LIMIT) -> Iterator[Line]:
    """Yield JSON documents: the whole file when it is named `.json`, else its lines."""
    if not path.name.removesuffix(".gz").endswith(".json"):
        yield from lines(path, tell, limit=limit)
        return
    with opened(path) as file:
        try:
            data = file.read(DOCUMENT_LIMIT + 1)
        except (OSError, EOFError, zlib.error) as error:
            tell(Problem(1, f"the compressed file cannot be read ({error})", path.name))
            return
    if len(data) > DOCUMENT_LIMIT:
        what = f"longer than {DOCUMENT_LIMIT >> 20} MiB; use JSON lines"
        tell(Problem(1, what, path.name))
    elif data.strip():
        yield Line(1, data)
