"""What every span that is begun in a scope is given, whoever begins it.

A span processor as the SDK calls it, without the SDK: it needs no base class.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from opentelemetry import trace

from tenuto import process
from tenuto.context import current_session
from tenuto.session import Session
from tenuto.telemetry import names

Attributes = dict[str, Any]

# The span that was begun last in this context: a model call's need not be made current.
_LAST: ContextVar[weakref.ref[Any] | None] = ContextVar("tenuto_last_span", default=None)


def attributes_of(span: Any) -> Attributes:
    """Return what is on a span so far; nothing of one that cannot be read."""
    return getattr(span, "attributes", None) or {}


def ids_of(session: Session) -> Attributes:
    """Return a session as spans have it; the ids are hashes."""
    said = {names.RUN: session.run_id, names.SESSION: session.session_id}
    if session.parent is not None:
        said[names.PARENT_SESSION] = session.parent.session_id
    if session.agent:
        said[names.AGENT_PATH] = session.agent
    return said


def conversation_of(session: Session) -> Attributes:
    """Return what the conventions have for a session."""
    said = {names.CONVERSATION: session.session_id}
    if session.agent:
        said[names.AGENT_NAME] = session.agent.rpartition("/")[2]
    return said


def put(span: Any, said: Attributes) -> None:
    """Put on a span what it does not have yet."""
    there = attributes_of(span)
    wanted = {name: value for name, value in said.items() if name not in there}
    if wanted:
        span.set_attributes(wanted)


def last_begun(current: Any) -> Any:
    """Return the model call's span that was begun here below `current` and is not current."""
    made = _LAST.get()
    span = made() if made is not None else None
    if span is None or span is current or not span.is_recording():
        return None
    above = span.parent.span_id if span.parent is not None else trace.INVALID_SPAN_ID
    if above != current.get_span_context().span_id:
        return None
    return span if names.is_model_call(attributes_of(span)) else None


class SessionSpanProcessor:
    """Puts the session in scope on every span that begins; never over what its maker set.

    For `TracerProvider.add_span_processor`, or for whoever takes span processors, such as
    `logfire.configure(additional_span_processors=[...])`. `instrument` adds one by itself.

    Args:
        on_span: called with each span that begins or ends in a scope, and its session.
        on_flush: called when the provider is flushed.
    """

    def __init__(
        self,
        on_span: Callable[[Any, Session], object] | None = None,
        on_flush: Callable[[], object] | None = None,
    ) -> None:
        self.is_on = True
        self._on_span = on_span
        self._on_flush = on_flush

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """Annotate a span; called by the SDK."""
        if not self.is_on:
            return
        try:
            session = current_session()
            if session is None or process.settings().disabled:
                return
            there = attributes_of(span)
            said = ids_of(session)
            # Langfuse takes every span with a name of the conventions' for one of a model's.
            if names.is_gen_ai(span.name, there):
                said |= conversation_of(session)
            put(span, said)
            _LAST.set(weakref.ref(span))
            if self._on_span is not None:
                self._on_span(span, session)
        except Exception:
            process.pass_over("trace")

    def on_end(self, span: Any) -> None:
        """Look at a span that is whole; called by the SDK."""
        if not self.is_on or self._on_span is None:
            return
        try:
            session = current_session()
            if session is not None:
                self._on_span(span, session)
        except Exception:
            process.pass_over("trace")

    def _on_ending(self, span: Any) -> None:
        pass

    def shutdown(self) -> None:
        """Do nothing; called by the SDK."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Have what is over be told; called by the SDK."""
        if self.is_on and self._on_flush is not None:
            self._on_flush()
        return True
