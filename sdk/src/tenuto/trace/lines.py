"""Read the lines of a file, compressed or not, in bounded memory and past its faults."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tenuto.trace.parse import is_json
from tenuto.trace.problem import Problem, Tell

LINE_LIMIT = 64 << 20
DOCUMENT_LIMIT = 1 << 30
HEAD_LINES = 50
_HEAD_BYTES = 1 << 16
_BUFFER_BYTES = 1 << 18
_SKIPPED_BYTES = 1 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


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


class _Text(io.RawIOBase):
    """The text of a file up to its end or its first fault, which is kept.

    Attributes:
        fault: why it cannot be read further.
    """

    def __init__(self, file: io.BufferedIOBase) -> None:
        super().__init__()
        self._file = file
        self.fault: Exception | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        if self.fault is not None:
            return 0
        try:
            return self._file.readinto1(buffer)
        except (OSError, EOFError, zlib.error) as error:
            self.fault = error
            return 0


class _Joined(io.BufferedIOBase):
    """Bytes that were read already, then the rest of their file."""

    def __init__(self, begin: bytes, file: io.BufferedReader[_Text]) -> None:
        super().__init__()
        self._begin = io.BytesIO(begin)
        self._file = file

    def readinto1(self, buffer: Any, /) -> int:
        return self._begin.readinto1(buffer) or self._file.readinto1(buffer)


class _Opened(NamedTuple):
    file: io.BufferedReader[_Text]
    text: _Text


@contextmanager
def _opened(path: Path) -> Generator[_Opened]:
    """Open a file once, so that it may be a pipe; through gzip when its first bytes say so."""
    with path.open("rb") as file:
        is_packed = file.peek(2)[:2] == b"\x1f\x8b"
        text = _Text(gzip.GzipFile(fileobj=file) if is_packed else file)
        opened = io.BufferedReader(text, _BUFFER_BYTES)
        if opened.peek(3)[:3] == _BYTE_ORDER_MARK:
            opened.read(3)
        yield _Opened(opened, text)


def heads(path: Path, on_fault: Callable[[Exception], object]) -> Iterator[bytes]:
    """Yield the first 64 KiB of each of a file's first lines.

    Args:
        path: the file.
        on_fault: takes why no more can be read, where that is so.
    """
    with _opened(path) as (file, text):
        for _ in range(HEAD_LINES):
            data = file.readline(_HEAD_BYTES)
            if data.strip():
                yield data
            if not data.endswith(b"\n"):
                _skip(file)
        if text.fault is not None:
            on_fault(text.fault)


def lines(path: Path, tell: Tell, *, limit: int = LINE_LIMIT) -> Iterator[Line]:
    """Yield the lines that are not blank.

    A line over `limit` bytes is skipped without being held. A compressed file that ends early
    or is damaged is read up to there.
    """
    with _opened(path) as (file, text):
        yield from _lines(file, text, path.name, tell, limit)


def documents(path: Path, tell: Tell, *, limit: int = LINE_LIMIT) -> Iterator[Line]:
    """Yield JSON documents: each line, or the whole file where no line is one.

    What a file is called does not say which: both are found under either name.
    """
    with _opened(path) as (file, text):
        begin = b""
        while not begin.strip() and (more := file.readline(limit + 1)):
            begin += more
        if begin.strip() and not is_json(begin):
            begin += file.read(max(0, DOCUMENT_LIMIT + 1 - len(begin)))
            if len(begin) <= DOCUMENT_LIMIT and (is_json(begin) or not _has_documents(begin)):
                yield Line(1, begin)
                _tell_fault(text, 1, path.name, tell)
                return
        again = io.BufferedReader(_Text(_Joined(begin, file)), _BUFFER_BYTES)
        yield from _lines(again, text, path.name, tell, limit)


def bad(line: Line, name: str, what: str, *, is_json: bool) -> Problem:
    """Return what is wrong with a line that cannot be taken; that it is torn is a note.

    Args:
        line: of the file.
        name: of the file.
        what: is wrong.
        is_json: whether it is JSON at least.
    """
    if not line.is_whole and not is_json:
        what = "the last line is torn, as when its writer died; dropped"
        return Problem(line.number, what, name, is_note=True)
    return Problem(line.number, f"{what}; left out", name)


def _lines(
    file: io.BufferedReader[_Text], text: _Text, name: str, tell: Tell, limit: int
) -> Iterator[Line]:
    number, is_whole = 0, True
    while data := file.readline(limit + 1):
        number += 1
        is_whole = data.endswith(b"\n")
        if not is_whole and len(data) > limit:
            _skip(file)
            tell(Problem(number, f"line is longer than {limit >> 20} MiB; left out", name))
        elif said := data.strip():
            yield Line(number, said, is_whole)
    _tell_fault(text, number + is_whole, name, tell)


def _tell_fault(text: _Text, number: int, name: str, tell: Tell) -> None:
    if text.fault is not None:
        what = f"the file cannot be read further ({text.fault}); the rest is left out"
        tell(Problem(number, what, name))


def _skip(file: io.BufferedReader[_Text]) -> None:
    while (data := file.readline(_SKIPPED_BYTES)) and not data.endswith(b"\n"):
        pass


def _has_documents(data: bytes) -> bool:
    """Whether a line is an object by itself, as none of an indented document is."""
    whole = (line.strip() for line in io.BytesIO(data))
    return any(
        line.startswith(b"{") and line.endswith(b"}") and len(line) > 2 and is_json(line)
        for line in whole
    )
