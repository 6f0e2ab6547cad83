"""Setting tracing up, and taking it down again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from tenuto import observer, process
from tenuto.entries import Entry
from tenuto.errors import ConfigError
from tenuto.observer import Watched, watched_with
from tenuto.redirects import sent_with
from tenuto.session import Session
from tenuto.telemetry.calls import Calls, span_of_call
from tenuto.telemetry.carried import Carried, carry
from tenuto.telemetry.own import OwnSpans
from tenuto.telemetry.tools import ToolWaits
from tenuto.telemetry.tracers import Tracers


class _Observer:
    """What one set-up does with calls and scopes."""

    def __init__(self, tracers: Tracers, own: OwnSpans | None, carried: Carried) -> None:
        self.tracers = tracers
        self._own = own
        self._carried = carried
        self.waits = ToolWaits(tracers) if own is not None else None

    def close(self) -> None:
        if self.waits is not None:
            self.waits.flush()
        if self._own is not None:
            self._own.close()
        self.tracers.stop()

    def sending(self, client: Any, options: Any, request: Any) -> Watched | None:
        try:
            self.tracers.follow()
            sent = sent_with(request)
            if sent is None:
                return None
            span = span_of_call()
            carry(request, sent, span, self._carried)
            # Of several that are set up the first annotates, whoever makes spans of the waits.
            if watched_with(request) is not None:
                return None
            waits = next(_waits(), None)
            return _CALLS.begin(client, options, sent, span, waits)
        except Exception:
            process.pass_over("trace")
            return None

    def entered(self, entry: Entry) -> None:
        try:
            self.tracers.follow()
            if self._own is not None and not process.settings().disabled:
                self._own.enter(entry)
        except Exception:
            process.pass_over("trace")

    def left(self, entry: Entry, error: BaseException | None) -> None:
        try:
            if self._own is not None:
                self._own.leave(entry, error)
        except Exception:
            process.pass_over("trace")


# By their arguments.
_OPEN: dict[tuple[object, ...], _Observer] = {}
_OPENING = threading.Lock()
_CALLS = Calls()


def _waits() -> Iterator[ToolWaits]:
    for one in list(_OPEN.values()):
        if one.waits is not None:
            yield one.waits


def _seen(span: Any, session: Session) -> None:
    for waits in _waits():
        waits.seen(span, session)


def _flush() -> None:
    for waits in _waits():
        waits.flush()


class Tracing:
    """Annotates spans until it is closed. Made by `instrument`; also a context manager."""

    def __init__(self, key: tuple[object, ...], one: _Observer) -> None:
        self._key = key
        self._one = one

    def close(self) -> None:
        """Annotate no more spans, and begin none; closing again does nothing."""
        with _OPENING:
            if _OPEN.get(self._key) is not self._one:
                return
            del _OPEN[self._key]
            observer.remove(self._one)
        self._one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def instrument(
    provider: Any = None,
    *,
    own_spans: bool = False,
    workflow: str | None = None,
    baggage: bool = False,
    traceparent: bool = False,
) -> Tracing:
    """Put run, session, agent, turn and try on the spans that others make, from here on.

    Args:
        provider: the OpenTelemetry tracer provider whose spans are meant; by default the global
            one, whichever that is at each moment.
        own_spans: also make spans where nobody does: `invoke_workflow` for each run,
            `invoke_agent` for each agent's scope, `execute_tool` for each wait for a tool.
        workflow: what the runs of this program do, such as "triage"; the name of their spans.
        baggage: send OpenTelemetry's baggage, and the session's ids in it, with each marked
            request, but to no public API that is known by name.
        traceparent: send the trace's context with each of them.

    Returns:
        What ends it by `close()`, or at the end of a `with` block. Called again with the same
        arguments it changes nothing, and either ends both.

    Raises:
        ConfigError: `provider` is no tracer provider, or `workflow` is given without own spans.
    """
    if workflow is not None and not own_spans:
        raise ConfigError("workflow names our own spans: give own_spans=True as well")
    key = (id(provider), own_spans, workflow, baggage, traceparent)
    with _OPENING:
        if key not in _OPEN:
            tracers = Tracers(provider, _seen, _flush)
            own = OwnSpans(tracers, workflow) if own_spans else None
            one = _Observer(tracers, own, Carried(trace=traceparent, baggage=baggage))
            tracers.follow()
            _OPEN[key] = one
            observer.add(one)
        return Tracing(key, _OPEN[key])
