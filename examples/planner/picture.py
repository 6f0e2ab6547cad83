"""`python -m examples.planner.picture OUT.svg`: one trace of the program, as a picture.

pip install opentelemetry-sdk opentelemetry-instrumentation-genai-openai

The model calls' spans are genai-openai's, those of agents and tools tenuto's. The model fails
once, so that there is a retry to see.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.responses import Response

import tenuto.telemetry
from examples.planner import PROGRAMS, program
from examples.planner.scripted import serving
from examples.planner.waterfall import waterfall_svg

# The planner's call after those of its workers.
_UNLUCKY = 8
_CALLED = {"langgraph": "LangGraph", "agents": "the OpenAI Agents SDK"}


class Span(NamedTuple):
    """A span as the picture needs it."""

    name: str
    start_ns: int
    end_ns: int
    attributes: Any
    events: Sequence[tuple[str, int, Any]]


class FailsOnce:
    """ASGI middleware: one call of the run gets 503."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._calls = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or fail it."""
        is_call = scope.get("path") == "/v1/chat/completions"
        self._calls += is_call
        if is_call and self._calls == _UNLUCKY:
            answer = Response(status_code=503, headers={"retry-after-ms": "100"})
            await answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def export(framework: str, exporter: SpanExporter, *middleware: type[Any]) -> None:
    """Run the program on the scripted model, and send its spans to an exporter."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    try:
        with (
            tenuto.telemetry.instrument(provider, own_spans=True, workflow="quote"),
            serving(FailsOnce, *middleware) as url,
        ):
            asyncio.run(program(framework)(url, "tiny", "none"))
    finally:
        OpenAIInstrumentor().uninstrument()
        provider.shutdown()


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.planner.picture",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("out", type=Path, metavar="OUT.svg")
    parser.add_argument("--framework", choices=tuple(PROGRAMS), default="langgraph")
    options = parser.parse_args()
    exporter = InMemorySpanExporter()
    export(options.framework, exporter)
    spans = [
        Span(
            span.name,
            span.start_time or 0,
            span.end_time or 0,
            span.attributes,
            [(event.name, event.timestamp, event.attributes or {}) for event in span.events],
        )
        for span in exporter.get_finished_spans()
    ]
    title = f"One trace of a planner, its workers and a verifier, in {_CALLED[options.framework]}"
    options.out.write_text(waterfall_svg(spans, title=title), encoding="utf-8")


if __name__ == "__main__":
    main()
