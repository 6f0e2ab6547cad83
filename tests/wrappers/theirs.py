"""The wrappers of others, each as a context in which a client is instrumented.

Every one takes a client, instruments it (or its class, where that is how the wrapper works),
yields a function that lists what it has recorded, and leaves openai as it was.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import langfuse
import langfuse.openai
import langsmith
import langsmith.wrappers
import logfire
import openai
from openinference.instrumentation.openai import OpenAIInstrumentor as OpenInference
from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor as GenAi
from opentelemetry.instrumentation.utils import unwrap
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

Recorded = Callable[[], list[str]]


def _spans(exporter: InMemorySpanExporter) -> Recorded:
    return lambda: [span.name for span in exporter.get_finished_spans()]


def _provider() -> tuple[TracerProvider, InMemorySpanExporter]:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


def _without_langfuse() -> None:
    for method in langfuse.openai.OPENAI_METHODS_V1:
        # It lists methods of older openai too.
        with contextlib.suppress(ModuleNotFoundError):
            module = importlib.import_module(method.module)
            unwrap(getattr(module, method.object), method.method)


# Its import instruments openai for the whole process.
_without_langfuse()


@functools.lru_cache(maxsize=1)
def _langfuse() -> tuple[langfuse.Langfuse, InMemorySpanExporter]:
    """Return its client, which is one for each public key whatever else it is given."""
    exporter = InMemorySpanExporter()
    client = langfuse.Langfuse(
        public_key="pk-loopback",
        secret_key="sk-loopback",
        base_url="http://127.0.0.1:9",
        tracer_provider=TracerProvider(),
        span_exporter=exporter,
    )
    return client, exporter


@contextlib.contextmanager
def langfuse_openai(client: Any) -> Iterator[Recorded]:
    """`from langfuse.openai import openai`: its import replaces methods of the resources."""
    tracing, exporter = _langfuse()
    tracing.flush()
    exporter.clear()
    langfuse.openai.register_tracing()

    def recorded() -> list[str]:
        tracing.flush()
        return _spans(exporter)()

    try:
        yield recorded
    finally:
        _without_langfuse()


@contextlib.contextmanager
def logfire_client(client: Any) -> Iterator[Recorded]:
    """`logfire.instrument_openai(client)`: replaces `request` on the instance."""
    exporter = InMemorySpanExporter()
    local = logfire.configure(
        local=True,
        send_to_logfire=False,
        console=False,
        inspect_arguments=False,
        additional_span_processors=[SimpleSpanProcessor(exporter)],
    )
    with local.instrument_openai(client):
        yield _spans(exporter)


@contextlib.contextmanager
def logfire_class(client: Any) -> Iterator[Recorded]:
    """`logfire.instrument_openai(OpenAI)`: replaces `request` on openai's own class."""
    asynchronous = isinstance(client, openai.AsyncOpenAI)
    with logfire_client(openai.AsyncOpenAI if asynchronous else openai.OpenAI) as recorded:
        yield recorded


@contextlib.contextmanager
def openinference(client: Any) -> Iterator[Recorded]:
    """OpenInference: replaces `request` on openai's own classes."""
    provider, exporter = _provider()
    OpenInference().instrument(tracer_provider=provider)
    try:
        yield _spans(exporter)
    finally:
        OpenInference().uninstrument()


@contextlib.contextmanager
def otel_genai(client: Any) -> Iterator[Recorded]:
    """OpenTelemetry's own: replaces methods of the resources' classes."""
    provider, exporter = _provider()
    GenAi().instrument(tracer_provider=provider)
    try:
        yield _spans(exporter)
    finally:
        GenAi().uninstrument()


class _Runs(langsmith.Client):
    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:9", api_key="k", auto_batch_tracing=False)
        self.names: list[str] = []

    def create_run(self, name: str, *args: Any, **more: Any) -> None:
        self.names.append(name)

    def update_run(self, *args: Any, **more: Any) -> None:
        pass


@contextlib.contextmanager
def langsmith_client(client: Any) -> Iterator[Recorded]:
    """`langsmith.wrappers.wrap_openai(client)`: replaces methods of the client's resources."""
    runs = _Runs()
    langsmith.wrappers.wrap_openai(client, tracing_extra={"client": runs})
    yield lambda: runs.names


THEIRS: dict[str, Callable[[Any], AbstractContextManager[Recorded]]] = {
    "langfuse": langfuse_openai,
    "logfire client": logfire_client,
    "logfire class": logfire_class,
    "openinference": openinference,
    "otel genai": otel_genai,
    "langsmith": langsmith_client,
}
