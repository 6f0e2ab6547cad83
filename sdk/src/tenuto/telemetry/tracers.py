"""The providers whose spans are annotated, and the one that makes ours."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

from opentelemetry import trace

from tenuto.errors import ConfigError
from tenuto.session import Session
from tenuto.telemetry.processor import SessionSpanProcessor

OnSpan = Callable[[Any, Session], object]


class Tracers:
    """One provider, or the global one, whichever that is when it is needed.

    Args:
        provider: None for the global one.
        on_span: as `SessionSpanProcessor` takes it.
        on_flush: the same.

    Raises:
        ConfigError: `provider` is no tracer provider.
    """

    def __init__(self, provider: Any, on_span: OnSpan, on_flush: Callable[[], object]) -> None:
        if provider is not None and not hasattr(provider, "get_tracer"):
            raise ConfigError(
                f"provider is an OpenTelemetry TracerProvider, got {type(provider).__name__}"
            )
        self._given = provider
        self._told = (on_span, on_flush)
        self._known: tuple[Any, Any] | None = None
        self._tracer: Any = None
        self._lock = threading.RLock()
        self._is_stopped = False
        # A provider has no way to take a processor off again.
        self._processors: list[tuple[weakref.ref[Any], SessionSpanProcessor]] = []

    def follow(self) -> None:
        """Annotate the spans of the provider that there is at this moment."""
        provider: Any = self._given if self._given is not None else trace.get_tracer_provider()
        # logfire's stands for one that each `configure` makes anew.
        inner = getattr(provider, "provider", provider)
        known = self._known
        if known is not None and known[0] is provider and known[1] is inner:
            return
        with self._lock:
            if self._is_stopped:
                return
            self._known = (provider, inner)
            self._tracer = None
            if not hasattr(inner, "add_span_processor"):
                return
            for held, processor in self._processors:
                if held() is inner:
                    processor.is_on = True
                    return
            processor = SessionSpanProcessor(*self._told)
            provider.add_span_processor(processor)
            self._processors = [one for one in self._processors if one[0]() is not None]
            self._processors.append((weakref.ref(inner), processor))

    def get(self) -> Any:
        """Return the tracer of our own spans."""
        self.follow()
        tracer = self._tracer
        if tracer is None:
            provider = self._given if self._given is not None else trace.get_tracer_provider()
            tracer = self._tracer = provider.get_tracer("tenuto")
        return tracer

    def stop(self) -> None:
        """Annotate nothing more."""
        with self._lock:
            self._is_stopped = True
            for _, processor in self._processors:
                processor.is_on = False
