"""The own format: an event a line (`tenuto.trace.event`)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tenuto.trace.assemble import assembled
from tenuto.trace.events import events_of, line_of, numbered_events
from tenuto.trace.model import Trace
from tenuto.trace.problem import Problem, Tell, TraceError
from tenuto.trace.writing import write_lines

_KIND = re.compile(rb'"kind"\s*:\s*"(call|run)"')


def sniff(begin: bytes) -> bool:
    """Whether any of the first lines is an event."""
    return _KIND.search(begin) is not None and b'"run_id"' in begin


def read(path: Path, tell: Tell) -> Iterator[Trace]:
    """Yield the traces, each when its last line was read."""
    return assembled(numbered_events(path, tell), path.name, tell)


def read_parts(paths: Iterable[Path], tell: Tell) -> Iterator[Trace]:
    """Yield the traces of several files as if they were one: parts of a run belong together."""
    events = itertools.chain.from_iterable(numbered_events(path, tell) for path in paths)
    return assembled(events, "", tell)


def write(path: Path, traces: Iterable[Trace]) -> None:
    """Write the events of each trace, the run's line first."""
    write_lines(path, _rows(traces))


def _rows(traces: Iterable[Trace]) -> Iterator[bytes]:
    written: set[str] = set()
    for trace in traces:
        if trace.id in written:
            what = f"two traces are called {trace.id}; in this format they would be one run"
            raise TraceError([Problem(None, what)])
        written.add(trace.id)
        try:
            yield from map(line_of, events_of(trace))
        except ValueError as error:
            what = f"trace {trace.id} cannot be said: {error}"
            raise TraceError([Problem(None, what)]) from error
