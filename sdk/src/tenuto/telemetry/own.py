"""Our own spans, where they are asked for: a run's, and each agent's.

A span is current where its scope was entered, as long as it is open. No token of the context is
held: leaving a scope takes its own span away from where it is current, and else changes nothing.
What a generator's body opens would be its consumer's too, and is current nowhere.
"""

from __future__ import annotations

import inspect
import weakref
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Span, Status, StatusCode

from tenuto.context import Scope
from tenuto.entries import Entry
from tenuto.scopes import Agent, Run
from tenuto.session import Session
from tenuto.telemetry import names
from tenuto.telemetry.processor import attributes_of, conversation_of, ids_of
from tenuto.telemetry.tracers import Tracers

_KEY = contexts.create_key("tenuto-own-span")
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


class _Own:
    """A span of ours.

    Attributes:
        span: it.
        session_id: whose it is.
        before: the context that it was made in.
        during: the one in which it was made current; None when it is current nowhere.
        is_open: it has not ended.
    """

    __slots__ = ("before", "during", "is_open", "session_id", "span")

    def __init__(self, span: Span, session_id: str, before: contexts.Context) -> None:
        self.span = span
        self.session_id = session_id
        self.before = before
        self.during: weakref.ref[contexts.Context] | None = None
        self.is_open = True


class OwnSpans:
    """The spans of the scopes that are open.

    Args:
        tracers: makes them.
        workflow: the program's name for what its runs do.
    """

    def __init__(self, tracers: Tracers, workflow: str | None) -> None:
        self._tracers = tracers
        self._workflow = workflow
        # Of each scope by the ids of its enterings: those would keep the scope that is the key.
        self._open: WeakKeyDictionary[Scope, dict[int, _Own]] = WeakKeyDictionary()

    def enter(self, entry: Entry) -> None:
        """Begin a scope's span, unless there is one for it already."""
        scope, session = entry.owner, entry.session
        if session is None or not isinstance(scope, Run | Agent):
            return
        above = self._above(entry, _leave_ended())
        if isinstance(scope, Run):
            operation, name, said = names.INVOKE_WORKFLOW, self._workflow, names.WORKFLOW_NAME
        else:
            operation, name, said = names.INVOKE_AGENT, _name_of(session), names.AGENT_NAME
        if _is_there(trace.get_current_span(above), above, operation, name, session):
            return
        attributes = {names.OPERATION: operation} | ids_of(session) | conversation_of(session)
        if name:
            attributes[said] = name
        span = self._tracers.get().start_span(
            f"{operation} {name}" if name else operation, above, attributes=attributes
        )
        if not span.get_span_context().is_valid:
            return
        own = _Own(span, session.session_id, above)
        if not _is_opened_by(entry.body):
            during = contexts.set_value(_KEY, own, trace.set_span_in_context(span, above))
            own.during = weakref.ref(during)
            contexts.attach(during)
        self._open.setdefault(scope, {})[id(entry)] = own

    def leave(self, entry: Entry, error: BaseException | None) -> None:
        """End a scope's span."""
        scope = entry.owner
        if not isinstance(scope, Scope):
            return
        own = self._open.get(scope, {}).pop(id(entry), None)
        if own is not None:
            self._end(own, error)

    def close(self) -> None:
        """End the spans of all scopes that are open still."""
        for open_in_scope in list(self._open.values()):
            while open_in_scope:
                self._end(open_in_scope.popitem()[1], None)

    def _end(self, own: _Own, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, GeneratorExit):
            own.span.set_attribute(names.ERROR, type(error).__qualname__)
            own.span.set_status(Status(StatusCode.ERROR))
        own.is_open = False
        _leave_ended()
        own.span.end()

    def _above(self, entry: Entry, context: contexts.Context) -> contexts.Context:
        """Return the context that a scope's span begins in: below that of the scope around it."""
        around = entry.previous
        while around is not None:
            owner = around.owner
            own = self._open.get(owner, {}).get(id(around)) if isinstance(owner, Scope) else None
            if own is not None:
                is_hidden = own.during is None
                is_innermost = trace.get_current_span(context) is trace.get_current_span(own.before)
                return (
                    trace.set_span_in_context(own.span, context)
                    if is_hidden and is_innermost
                    else context
                )
            around = around.previous
        return context


def _is_there(
    current: Span, context: contexts.Context, operation: str, name: str | None, session: Session
) -> bool:
    """Tell whether the current span stands for what a scope would have one for."""
    there = attributes_of(current)
    if there.get(names.OPERATION) != operation:
        return False
    own: Any = context.get(_KEY)
    if isinstance(own, _Own) and own.span is current:
        return own.session_id == session.session_id
    theirs = there.get(names.WORKFLOW_NAME if name is None else names.AGENT_NAME)
    return operation == names.INVOKE_WORKFLOW or theirs in {None, name, session.agent}


def _name_of(session: Session) -> str:
    return session.agent.rpartition("/")[2]


def _leave_ended() -> contexts.Context:
    """Have none of our spans that has ended be current here, and return the context.

    One is where its scope was left by another task, or before those in it.
    """
    found = context = contexts.get_current()
    while True:
        own: Any = context.get(_KEY)
        if not isinstance(own, _Own) or own.is_open:
            break
        if trace.get_current_span(context) is not own.span:
            break
        if own.during is not None and own.during() is context:
            context = own.before
        else:
            # Others have put something into it meanwhile, which stays.
            before = trace.set_span_in_context(trace.get_current_span(own.before), context)
            context = contexts.set_value(_KEY, own.before.get(_KEY), before)
    if context is not found:
        contexts.attach(context)
    return context


def _is_opened_by(body: FrameType | None) -> bool:
    """Tell whether a generator's body itself opens the scope that is being entered.

    What a function opens that the body has called is closed again before anything is yielded.
    """
    frame = inspect.currentframe() if body is not None else None
    while frame is not None:
        if frame is body:
            return True
        module = str(frame.f_globals.get("__name__")).partition(".")[0]
        # The body of a context manager is lent to its user.
        is_lent = frame.f_code.co_flags & _GENERATORS
        if module not in {"tenuto", "contextlib"} and not is_lent:
            return False
        frame = frame.f_back
    return False
