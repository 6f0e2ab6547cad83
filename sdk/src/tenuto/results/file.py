"""Writing result files line by line, and reading them back, also after a crash."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, cast

from pydantic import TypeAdapter, ValidationError

from tenuto.results.header import Header
from tenuto.results.place import is_trace
from tenuto.results.turn import TurnResult, cached_is_known
from tenuto.trace.problem import Problem

# Header fields in which two headers of one file may differ.
MAY_DIFFER = frozenset({"started", "resumed", "machine", "calls", "cached_known"})
# Above it a count is no whole number everywhere that reads JSON, and nothing that was counted.
_MOST = 1 << 53

_TURN = TypeAdapter(TurnResult)


@dataclass(frozen=True, slots=True)
class Results:
    """A result file that was read.

    Attributes:
        header: the last one of the file, with what its turns say of `cached_known`.
        turns: in the order of the file.
        problems: lines that could not be used, and notes.
    """

    header: Header
    turns: tuple[TurnResult, ...]
    problems: tuple[Problem, ...] = ()


class ResultWriter:
    """Appends to a result file; what was added survives the process. A context manager."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def header(self, header: Header) -> None:
        """Write the header, before any turn; again where a run is taken up."""
        self._line(header.model_dump_json())

    def add(self, turn: TurnResult) -> None:
        """Write what one turn met."""
        said = {name: value for name, value in asdict(turn).items() if value is not None}
        if turn.cached_known:
            del said["cached_known"]
        self._line(json.dumps({"kind": "turn", **said, "rank": turn.rank}, separators=(",", ":")))

    def _line(self, text: str) -> None:
        self._file.write(text.encode() + b"\n")
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def write(path: str | Path, *, append: bool = False) -> ResultWriter:
    """Return a writer of `path`; with `append` behind what is there, less a torn last line.

    Raises:
        OSError: the file cannot be opened.
        ValueError: a compressed file is to be appended to.
    """
    path = Path(path)
    if append:
        if path.suffix == ".gz":
            raise ValueError(f"{path.name}: a run cannot be taken up in a compressed file")
        _drop_torn_line(path)
        return ResultWriter(path.open("ab"))
    if path.suffix == ".gz":
        return ResultWriter(cast("BinaryIO", gzip.open(path, "wb")))
    return ResultWriter(path.open("wb"))


def read(path: str | Path) -> Results:
    """Read a result file, plain or `.gz`.

    Of the lines of one repeat of one trace only those after the last header before any of
    them count: a run that was taken up plays an unfinished trace again as a whole. Of two
    lines of the same turn the last counts. A last line that a crash has torn is dropped, with
    a note.

    Raises:
        ValueError: when the file has no header, or headers that do not agree.
        OSError: the file cannot be read.
    """
    path = Path(path)
    reading = _Reading(path)
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        try:
            for number, line in enumerate(cast("BinaryIO", file), start=1):
                reading.take(number, line)
        except EOFError:
            reading.problems.append(Problem(None, "the compressed file is cut off", is_note=True))
    return reading.results()


class _Reading:
    def __init__(self, path: Path) -> None:
        self.problems: list[Problem] = []
        self._path = path
        self._headers: list[Header] = []
        # By repeat and trace: after which header, and its lines by session and turn.
        self._kept: dict[tuple[int, str], tuple[int, dict[tuple[str, int], TurnResult]]] = {}

    def take(self, number: int, line: bytes) -> None:
        if not line.strip():
            return
        try:
            self._take(line)
        except (ValidationError, ValueError) as error:
            if isinstance(error, ValidationError):
                first = error.errors()[0]
                place = ".".join(map(str, first["loc"]))
                what = f"{place}: {first['msg']}" if place else first["msg"]
            else:
                what = str(error)
            torn = not line.endswith(b"\n")
            what = "a torn last line was dropped" if torn else what
            self.problems.append(Problem(number, what, is_note=torn))

    def _take(self, line: bytes) -> None:
        read_line: object = json.loads(line)
        given = cast("dict[str, Any]", read_line) if isinstance(read_line, dict) else {}
        kind: object = given.pop("kind", None)
        if kind == "header":
            self._take_header(Header.model_validate(given))
            return
        if kind != "turn":
            raise ValueError("neither a header nor a turn")
        if not self._headers:
            raise ValueError("a turn before the header")
        turn = _TURN.validate_python(given)
        _check(turn)
        segment, key = len(self._headers), (turn.repeat, turn.trace)
        kept = self._kept.get(key)
        if kept is None or kept[0] != segment:
            kept = self._kept[key] = (segment, {})
        # Out and in again, so that a turn stands where its last line does.
        kept[1].pop((turn.session, turn.turn), None)
        kept[1][turn.session, turn.turn] = turn

    def _take_header(self, header: Header) -> None:
        if self._headers and (names := differing(self._headers[0], header)):
            raise ValueError(f"a header that differs from the first in {', '.join(names)}")
        self._headers.append(header)

    def results(self) -> Results:
        if not self._headers:
            if is_trace(self._path):
                raise ValueError(f"{self._path} is a trace: `tenuto replay` it first")
            told = "; ".join(f"line {one.line}: {one.what}" for one in self.problems[:3])
            raise ValueError(f"{self._path}: no header of a result file. {told}".rstrip(". "))
        turns = tuple(turn for _, lines in self._kept.values() for turn in lines.values())
        header = self._headers[-1].model_copy(update={"cached_known": cached_is_known(turns)})
        return Results(header, turns, tuple(self.problems))


def differing(one: Header, other: Header) -> list[str]:
    """Return the fields in which headers differ that must agree for a run to be taken up."""
    return [
        name
        for name in Header.model_fields
        if name not in MAY_DIFFER and getattr(one, name) != getattr(other, name)
    ]


def _check(turn: TurnResult) -> None:
    times = (turn.due_s, turn.start_s, turn.first_token_s, turn.end_s)
    if not all(map(math.isfinite, (*times, turn.queue_s or 0.0))):
        raise ValueError("a time is not finite")
    if not turn.start_s <= turn.first_token_s <= turn.end_s:
        raise ValueError("its times are not in order")
    counts = (turn.prompt_tokens, turn.cached_tokens, turn.output_tokens, turn.turn, turn.repeat)
    or_none = (turn.rank, turn.reachable_tokens, turn.rank_reachable_tokens)
    known = [*counts, *(one for one in or_none if one is not None)]
    if min(known) < 0:
        raise ValueError("a count is below 0")
    if max(known) > _MOST:
        raise ValueError(f"a count is above {_MOST}")


def _drop_torn_line(path: Path) -> None:
    """Cut off what stands behind the last end of a line."""
    with path.open("r+b") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)
