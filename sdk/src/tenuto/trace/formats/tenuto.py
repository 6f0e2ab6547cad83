"""The own format: an event a line (`tenuto.trace.event`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tenuto.trace.assemble import assembled
from tenuto.trace.events import events_of, line_of, numbered_events
from tenuto.trace.model import Trace
from tenuto.trace.problem import Tell
from tenuto.trace.writing import write_lines

_KIND = re.compile(rb'"kind"\s*:\s*"(call|run)"')


def sniff(begin: bytes) -> bool:
    """Whether any of the first lines is an event."""
    return _KIND.search(begin) is not None and b'"run_id"' in begin


def read(path: Path, tell: Tell) -> Iterator[Trace]:
    """Yield the traces, each when its last line was read."""
    return assembled(numbered_events(path, tell), path.name, tell)


def write(path: Path, traces: Iterable[Trace]) -> None:
    """Write the events of each trace, the run's line first."""
    write_lines(path, (line_of(event) for trace in traces for event in events_of(trace)))
