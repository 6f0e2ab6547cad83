"""Trace formats, and the two ways in: read any of them, write those that can be written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from tenuto.trace.events import raised
from tenuto.trace.formats.format import Format
from tenuto.trace.formats.table import FORMATS
from tenuto.trace.lines import head
from tenuto.trace.model import Trace
from tenuto.trace.problem import Problem, Tell, TraceError

__all__ = ["FORMATS", "Format", "read", "write"]


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
    begin = head(path)
    for one in FORMATS:
        if one.sniff(begin):
            return one
    names = ", ".join(one.name for one in FORMATS)
    raise TraceError([Problem(1, f"in none of the formats {names}", path.name)])
