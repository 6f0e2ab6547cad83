"""What an agent program asked a model for, as values: read a public trace, scale it, write it."""

from __future__ import annotations

from tenuto.trace.model import Clock, Session, Trace, Turn, children_of
from tenuto.trace.scale import scale
from tenuto.trace.weka import read_weka, trace_from_weka
from tenuto.trace.weka_write import weka_from_trace, write_weka

__all__ = [
    "Clock",
    "Session",
    "Trace",
    "Turn",
    "children_of",
    "read_weka",
    "scale",
    "trace_from_weka",
    "weka_from_trace",
    "write_weka",
]
