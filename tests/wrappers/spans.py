"""Everybody who makes spans of openai's calls, each for a tracer provider of the test's."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

import langfuse
import langfuse.openai
import logfire
from openinference.instrumentation.openai import OpenAIInstrumentor as OpenInference
from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor as GenAi
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tenuto.telemetry import unscrubbed
from tests.frameworks.scripted import Model, Script
from tests.loopback import read_body
from tests.wrappers import theirs


class Made(NamedTuple):
    """A provider, and what was made with it."""

    provider: Any
    exporter: InMemorySpanExporter

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans that have ended, in the order of their beginning."""
        # Spans of waits are made by the first, which an exporter may have had before.
        self.provider.force_flush()
        self.provider.force_flush()
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)


def made() -> Made:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Made(provider, exporter)


@contextlib.contextmanager
def otel_genai(client: Any) -> Iterator[Made]:
    one = made()
    GenAi().instrument(tracer_provider=one.provider)
    try:
        yield one
    finally:
        GenAi().uninstrument()


@contextlib.contextmanager
def openinference(client: Any) -> Iterator[Made]:
    one = made()
    OpenInference().instrument(tracer_provider=one.provider)
    try:
        yield one
    finally:
        OpenInference().uninstrument()


@functools.lru_cache(maxsize=1)
def _langfuse() -> Made:
    client, exporter = theirs._langfuse()
    resources: Any = client._resources
    return Made(resources.tracer_provider, exporter)


@contextlib.contextmanager
def langfuse_openai(client: Any) -> Iterator[Made]:
    one = _langfuse()
    one.provider.force_flush()
    one.exporter.clear()
    langfuse.openai.register_tracing()
    try:
        yield one
    finally:
        theirs._without_langfuse()


@contextlib.contextmanager
def logfire_client(client: Any) -> Iterator[Made]:
    exporter = InMemorySpanExporter()
    local = logfire.configure(
        local=True,
        send_to_logfire=False,
        console=False,
        inspect_arguments=False,
        scrubbing=logfire.ScrubbingOptions(callback=unscrubbed),
        additional_span_processors=[SimpleSpanProcessor(exporter)],
    )
    with local.instrument_openai(client):
        yield Made(local.config.get_tracer_provider(), exporter)


MAKERS: dict[str, Callable[[Any], AbstractContextManager[Made]]] = {
    "otel genai": otel_genai,
    "openinference": openinference,
    "langfuse": langfuse_openai,
    "logfire": logfire_client,
}


@dataclass
class Serving(Model):
    """A model that says where it served a call, and that it had three quarters in its cache."""

    script: Script = lambda asked: '{"word": "hi"}'

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def sending(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                if message["status"] == 200:
                    served = (b"x-agent-served", b"rank=1, home=2, why=moved")
                    message["headers"] = [*message["headers"], served]
            else:
                details = json.dumps({"cached_tokens": 3}).encode()
                for kind in (b"prompt", b"input"):
                    usage = b'"%s_tokens": 4, "%s_tokens_details": %s' % (kind, kind, details)
                    body = message["body"].replace(b'"%s_tokens": 1' % kind, usage)
                    message["body"] = body.replace(
                        b'"input_tokens_details": {"cached_tokens": 0}, ', b""
                    )
            await send(message)

        if "/tenuto/" in scope["path"]:
            # News of what follows an answer.
            await read_body(receive)
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body"})
        else:
            await super().__call__(scope, receive, sending)
