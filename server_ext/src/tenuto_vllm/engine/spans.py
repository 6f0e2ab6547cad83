"""What is known of a turn, on vLLM's own span of its request; imports nothing of vLLM.

With `--otlp-traces-endpoint` vLLM makes the span `llm_request` when a request has ended, in one
method of its API process, `OutputProcessor.do_tracing`. It ends it in there, so that the
attributes come in by a span processor, as the span starts. Three things meet:

| what | how it gets there |
|---|---|
| what the HTTP call knows | `add_request` runs for the call, and leaves it with the request |
| what the engine has decided | in the request's trace headers, which come with its last output |
| tokens found cached | vLLM's state of the request |

A call that says nothing of a session leaves its spans as they are. Nothing in here raises.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from tenuto_vllm import logs, spans
from tenuto_vllm.engine import seam

_MARK = "_tenuto_spans"
_KNOWN = "tenuto_known"
HOOKS = {
    "add_request": ("request", "prompt", "parent_req", "request_index", "queue"),
    "do_tracing": ("engine_core_output", "req_state", "iteration_stats"),
}
"""Parameters of the methods of vLLM's `OutputProcessor` (the same in vLLM 0.30 to 0.33)."""

Known = Callable[[], spans.Attributes]

_current: ContextVar[Known | None] = ContextVar("tenuto_span", default=None)


def install(engine_client: object) -> bool:
    """Put what is known of turns on the spans of one engine client's requests, once.

    Args:
        engine_client: vLLM's `AsyncLLM`.

    Returns:
        True when the hooks are in place, now or from before. False where vLLM makes no spans,
        and where it makes them otherwise, which one event tells.
    """
    client: Any = engine_client
    processor: Any = getattr(client, "output_processor", None)
    if not getattr(processor, "tracing_enabled", False):
        return False
    try:
        if getattr(processor.do_tracing, _MARK, False):
            return True
        if not (why := _problem(processor)):
            _annotate_spans()
            processor.add_request = _with_box(processor, processor.add_request)
            processor.do_tracing = _with_turn(processor.do_tracing)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    if why:
        logs.tell(logging.WARNING, "spans_off", why=why)
    else:
        logs.tell(logging.INFO, "spans_on")
    return not why


def add_decision(request: Any, decided: dict[str, Any]) -> None:
    """Send an engine's decision along with a request's last output; it never raises.

    Args:
        request: the scheduler's.
        decided: as the decision log has it.
    """
    with contextlib.suppress(Exception):
        theirs: Any = request.trace_headers or {}
        request.trace_headers = {**theirs, spans.CARRIER: spans.pack(decided)}


def _problem(processor: Any) -> str:
    """Return what is not as it is known, as the end of a sentence, or ""."""
    for name, parameters in HOOKS.items():
        if (found := tuple(inspect.signature(getattr(processor, name)).parameters)) != parameters:
            return f"{type(processor).__name__}.{name} takes {', '.join(found) or 'nothing'}"
    return "" if hasattr(processor, "request_states") else "requests have no state"


def _annotate_spans() -> None:
    """Have the process's spans annotated as they start; it raises where that cannot be."""
    provider: Any = importlib.import_module("opentelemetry.trace").get_tracer_provider()
    if not getattr(provider, _MARK, False):
        base = importlib.import_module("opentelemetry.sdk.trace").SpanProcessor
        provider.add_span_processor(type("TurnSpans", (base,), {"on_start": _started})())
        setattr(provider, _MARK, True)


def _started(_: object, span: Any, parent_context: object = None) -> None:
    """Annotate a span that starts; where none of a turn's does, one look."""
    known = _current.get()
    if known is not None:
        with contextlib.suppress(Exception):
            span.set_attributes(known())


def _with_box(processor: Any, original: Callable[..., None]) -> Callable[..., None]:
    def add_request(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        box = seam.current_box()
        if box is not None and box.known is not None:
            with contextlib.suppress(Exception):
                request = args[0] if args else kwargs["request"]
                setattr(processor.request_states[request.request_id], _KNOWN, box.known)

    return add_request


def _with_turn(original: Callable[..., None]) -> Callable[..., None]:
    def do_tracing(engine_core_output: Any, req_state: Any, *args: Any, **kwargs: Any) -> None:
        known: Known | None = None
        with contextlib.suppress(Exception):
            known = _known(engine_core_output, req_state)
        token = _current.set(known)
        try:
            original(engine_core_output, req_state, *args, **kwargs)
        finally:
            _current.reset(token)

    setattr(do_tracing, _MARK, True)
    return do_tracing


def _known(output: Any, state: Any) -> Known | None:
    """Return what the span of a request that has ended is to say, and take ours off its output."""
    decided: spans.Attributes = {}
    if output.trace_headers and spans.CARRIER in output.trace_headers:
        theirs = dict(output.trace_headers)
        decided = spans.unpack(theirs.pop(spans.CARRIER))
        output.trace_headers = theirs or None
    told: Known | None = getattr(state, _KNOWN, None)
    if told is None:
        return None
    cached = spans.cached(state.num_cached_tokens, state.prompt_len)
    return lambda: {**told(), **decided, **cached}
