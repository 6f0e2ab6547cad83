"""Recording the model calls of a program as a trace file."""

from __future__ import annotations

from tenuto.recording.recorder import Recorder, record
from tenuto.recording.text import Redact

__all__ = ["Recorder", "Redact", "record"]
