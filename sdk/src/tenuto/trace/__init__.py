"""What an agent program asked a model for, as values: record, read, scale, measure, write."""

from __future__ import annotations

from tenuto.trace.assemble import traces_of
from tenuto.trace.counted import uncounted, uncounted_note
from tenuto.trace.cut import BLOCK_BYTES, cut
from tenuto.trace.digest import digest
from tenuto.trace.event import (
    VERSION,
    CallEvent,
    Event,
    Fork,
    RunEvent,
    Served,
    SessionNote,
    ToolSpan,
)
from tenuto.trace.events import events_of, line_of, read_events
from tenuto.trace.formats import FORMATS, Format, read, read_all, write
from tenuto.trace.model import Clock, Runs, Session, Trace, Turn, children_of
from tenuto.trace.problem import Problem, TraceError
from tenuto.trace.scale import scale
from tenuto.trace.split import split
from tenuto.trace.stats import TraceStats, stats

__all__ = [
    "BLOCK_BYTES",
    "FORMATS",
    "VERSION",
    "CallEvent",
    "Clock",
    "Event",
    "Fork",
    "Format",
    "Problem",
    "RunEvent",
    "Runs",
    "Served",
    "Session",
    "SessionNote",
    "ToolSpan",
    "Trace",
    "TraceError",
    "TraceStats",
    "Turn",
    "children_of",
    "cut",
    "digest",
    "events_of",
    "line_of",
    "read",
    "read_all",
    "read_events",
    "scale",
    "split",
    "stats",
    "traces_of",
    "uncounted",
    "uncounted_note",
    "write",
]
