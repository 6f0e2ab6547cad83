"""What a format must be able to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tenuto.trace.model import Trace
from tenuto.trace.problem import Tell


class Format(NamedTuple):
    """One row of the table of formats.

    Attributes:
        name: as users write it.
        about: one line.
        sniff: whether a line of a file (its first 64 KiB), or several together, look like it.
        read: yields the traces of a file; tells what it leaves out or puts right.
        write: writes traces; None for a format that is only read.
    """

    name: str
    about: str
    sniff: Callable[[bytes], bool]
    read: Callable[[Path, Tell], Iterator[Trace]]
    write: Callable[[Path, Iterable[Trace]], None] | None
