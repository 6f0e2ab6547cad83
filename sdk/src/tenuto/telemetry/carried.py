"""The trace and its baggage on the way to the model's host, where that is asked for.

Only on requests that carry our markers, taken off with them where a redirect leads elsewhere,
never over a header of the caller's, and to no public API that is known by name.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from opentelemetry import baggage, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tenuto import raw_headers
from tenuto.dialects import GENERIC, VLLM, for_host
from tenuto.redirects import Sent
from tenuto.telemetry.processor import conversation_of, ids_of

_TRACE = TraceContextTextMapPropagator()
_BAGGAGE = W3CBaggagePropagator()
_OWN = (GENERIC, VLLM)
# What every system must let through: https://www.w3.org/TR/baggage/#limits
_MAX_BAGGAGE_BYTES = 8192


class Carried(NamedTuple):
    """What is sent: `traceparent` and `tracestate`; `baggage`, with the session's ids in it."""

    trace: bool = False
    baggage: bool = False


def carry(request: Any, sent: Sent, span: Any, what: Carried) -> None:
    """Put a call's span and the current baggage on its request, marked with `sent`."""
    if not any(what) or for_host(request.url.host) not in _OWN:
        return
    given: dict[str, str] = {}
    if what.trace and "traceparent" not in request.headers:
        _TRACE.inject(given, trace.set_span_in_context(span))
    if what.baggage and "baggage" not in request.headers:
        context = None
        for name, value in (ids_of(sent.session) | conversation_of(sent.session)).items():
            context = baggage.set_baggage(name, value, context)
        _BAGGAGE.inject(given, context)
        if len(given["baggage"]) > _MAX_BAGGAGE_BYTES:
            del given["baggage"]
    for name, value in given.items():
        # With the markers: the guard takes them all off.
        item = (*raw_headers.name(name), value.encode())
        sent.markers.append(item)
        raw_headers.extend(request.headers, [item])
