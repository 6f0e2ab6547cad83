"""One id on every span: run, session, agent, turn and try on the spans that others make.

`instrument` is all that a program calls. It needs OpenTelemetry's API alone; without its SDK
there are no spans, and nothing is done.
"""

from __future__ import annotations

from tenuto.telemetry.instrument import Tracing, instrument
from tenuto.telemetry.names import unscrubbed
from tenuto.telemetry.processor import SessionSpanProcessor

__all__ = ["SessionSpanProcessor", "Tracing", "instrument", "unscrubbed"]
