"""Recording the model calls of a program as a trace file."""

from __future__ import annotations

from tenuto.recording.events import Redact
from tenuto.recording.recorder import Recorder, record

__all__ = ["Recorder", "Redact", "record"]
