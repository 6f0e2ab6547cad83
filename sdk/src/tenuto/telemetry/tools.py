"""A span for each wait for a tool, where nobody makes one: `execute_tool NAME`.

It is made when it is over, by the next call of the session: from the answer that asked for the
tool to the call that brings its result. Of parallel tools none can be told to be the slow one.
"""

from __future__ import annotations

import functools
import time
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from opentelemetry import trace

from tenuto.background import Background
from tenuto.redirects import Sent
from tenuto.session import Session
from tenuto.sessions import SessionState
from tenuto.telemetry import names
from tenuto.telemetry.processor import attributes_of, conversation_of, ids_of
from tenuto.telemetry.tracers import Tracers
from tenuto.turns import Try

_MAX_TOOLS = 32


def phase_of(attempt: Try) -> str:
    """Return what opened a turn, empty when that is not said.

    The text is our own; to read it as a stranger's would cost more than all else that is told.
    """
    return attempt.tail.partition("phase=")[2].partition(",")[0]


class _Wait(NamedTuple):
    tools: tuple[str, ...]
    since_ns: int
    above: Any


class ToolWaits:
    """The sessions that wait for tools."""

    def __init__(self, tracers: Tracers) -> None:
        self._tracers = tracers
        self._waits: WeakKeyDictionary[SessionState, _Wait] = WeakKeyDictionary()

    def begin(self, sent: Sent, call: Any, tools: tuple[str, ...]) -> None:
        """Have a session wait for tools, none of which is known to have a span."""
        state = sent.session.state
        if tools:
            self._waits[state] = _Wait(tools[:_MAX_TOOLS], time.time_ns(), _above(call))
        else:
            self._waits.pop(state, None)

    def seen(self, span: Any, session: Session) -> None:
        """Take a span that begins or ends while a session waits: it may be its tool's."""
        if session.state in self._waits and names.is_tool(span.name, attributes_of(span)):
            self._waits.pop(session.state, None)

    def end(self, sent: Sent) -> None:
        """Make the spans of a wait that this turn ends."""
        wait = self._waits.pop(sent.session.state, None)
        if wait is None or sent.attempt is None:
            return
        if phase_of(sent.attempt) == "tool":
            _ending().put(self._make, wait, sent.session, time.time_ns())

    def flush(self) -> None:
        """Wait a moment for those that are over to be made."""
        _ending().flush()

    def _make(self, wait: _Wait, session: Session, now_ns: int) -> None:
        for tool in wait.tools:
            said = {names.OPERATION: names.EXECUTE_TOOL, names.TOOL_NAME: tool}
            span = self._tracers.get().start_span(
                f"{names.EXECUTE_TOOL} {tool}",
                trace.set_span_in_context(wait.above),
                attributes=said | ids_of(session) | conversation_of(session),
                start_time=wait.since_ns,
            )
            span.end(now_ns)


def _above(call: Any) -> Any:
    """Return what a call's span is below, or that span where it stands for more than the call."""
    parent = getattr(call, "parent", None)
    is_call = names.is_model_call(attributes_of(call))
    if not is_call:
        return call
    return trace.NonRecordingSpan(parent) if parent is not None else trace.INVALID_SPAN


@functools.cache
def _ending() -> Background:
    # An exporter may be called where a span ends, and no request waits for one.
    return Background(_nothing)


def _nothing() -> None:
    pass
