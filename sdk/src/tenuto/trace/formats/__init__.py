"""Trace formats, and the two ways in: read any of them, write those that can be written."""

from __future__ import annotations

import itertools
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from tenuto.trace.events import raised
from tenuto.trace.formats import tenuto
from tenuto.trace.formats.format import Format
from tenuto.trace.formats.table import FORMATS
from tenuto.trace.lines import heads
from tenuto.trace.model import Trace
from tenuto.trace.problem import Problem, Tell, TraceError

__all__ = ["FORMATS", "Format", "read", "read_all", "write"]


def read(
    path: str | Path, *, format: str | None = None, on_problem: Tell | None = None
) -> Iterator[Trace]:
    """Yield the traces of a file.

    Args:
        path: the file, compressed or not.
        format: name of a format; without it, it is found by the first lines.
        on_problem: takes each problem as it is met; without it they are raised at the end.

    Raises:
        TraceError: when the format is not known; and, without `on_problem`, after the last
            trace when lines had faults.
        OSError: when the file cannot be read.
    """
    file = Path(path)
    known = _named(format) if format is not None else _found(file)
    return raised(lambda tell: known.read(file, tell), on_problem)


def read_all(
    paths: Iterable[str | Path], *, format: str | None = None, on_problem: Tell | None = None
) -> Iterator[Trace]:
    """Yield the traces of several files, in their order.

    Several files in the own format are read as one, as a recorder that puts full files aside
    leaves them. Arguments and errors are those of `read`.
    """
    files = [Path(path) for path in paths]
    known = [_named(format) if format is not None else _found(file) for file in files]
    if len(files) > 1 and all(one.read is tenuto.read for one in known):
        return raised(lambda tell: tenuto.read_parts(files, tell), on_problem)
    both = list(zip(known, files, strict=True))
    return raised(
        lambda tell: itertools.chain.from_iterable(one.read(file, tell) for one, file in both),
        on_problem,
    )


def write(path: str | Path, traces: Iterable[Trace], *, format: str = "tenuto") -> None:
    """Write traces to a file, through gzip when its name ends in `.gz`; whole or not at all.

    Raises:
        TraceError: when the format is not known, is only read, or cannot say a trace.
        OSError: when the file cannot be written.
    """
    known = _named(format)
    if known.write is None:
        able = ", ".join(one.name for one in FORMATS if one.write)
        raise TraceError([Problem(None, f"{format} is only read; formats to write: {able}")])
    known.write(Path(path), traces)


def _named(name: str) -> Format:
    for one in FORMATS:
        if one.name == name:
            return one
    names = ", ".join(one.name for one in FORMATS)
    raise TraceError([Problem(None, f"no format {name!r}; formats: {names}")])


def _found(path: Path) -> Format:
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        what = (
            "is no regular file and can be read only once, so its format cannot be found: "
            "name it (`--format`, `format=`), or write it to a file first"
        )
        raise TraceError([Problem(None, what, path.name)])
    # A line by itself: one that is garbage, or of another program, says nothing of the rest.
    begin, faults = b"", list[Exception]()
    for part in heads(path, faults.append):
        begin += part
        if (known := _sniffed(part)) is not None:
            return known
    if (known := _sniffed(begin)) is not None:
        return known
    for fault in faults:
        raise TraceError([Problem(1, f"the file cannot be read ({fault})", path.name)])
    if not path.stat().st_size:
        what = (
            "is empty: no call was recorded in it, as when no client was wrapped (tenuto.wrap), "
            "none had been answered, or the file has just been rotated"
        )
        raise TraceError([Problem(None, what, path.name)])
    names = ", ".join(one.name for one in FORMATS)
    raise TraceError([Problem(1, f"in none of the formats {names}", path.name)])


def _sniffed(begin: bytes) -> Format | None:
    return next((one for one in FORMATS if one.sniff(begin)), None)
