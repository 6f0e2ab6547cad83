"""What is wrong with a trace file, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

_SHOWN = 20


class InFile(int):
    """A line number that knows its file, where the lines of several are read as one."""

    name: str

    def __new__(cls, number: int, name: str) -> InFile:
        """Make one."""
        made = super().__new__(cls, number)
        made.name = name
        return made


class Problem(NamedTuple):
    """One thing that a reader left out or put right.

    Attributes:
        line: number in the file, from 1; None when it is about more than a line.
        what: what was found and what was done about it.
        path: name of the file.
        is_note: nothing that was whole is lost, such as when a writer died in its last line.
    """

    line: int | None
    what: str
    path: str = ""
    is_note: bool = False

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{where}: {self.what}" if where else self.what


Tell = Callable[[Problem], object]
"""Takes each problem as it is met."""


class TraceError(ValueError):
    """A trace file has faults; all that was good in it has been yielded before.

    Attributes:
        problems: each of them, in the order in which they were met.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        shown = [str(problem) for problem in self.problems[:_SHOWN]]
        if more := len(self.problems) - len(shown):
            shown.append(f"and {more} more")
        super().__init__("\n".join(shown))
