"""OpenTelemetry GenAI spans: a file with `spans`, a span a line, or OTLP's JSON. No text is kept.

| in the spans                                              | in the trace                    |
|-----------------------------------------------------------|---------------------------------|
| `gen_ai.conversation.id`, a session id, or the trace id   | the run                         |
| `gen_ai.agent.id`, its name, or the service's name        | the agent                       |
| `chat`, `text_completion`, `generate_content`             | a call                          |
| calls of an agent that do not overlap                     | a session; the first is root    |
| a call while all sessions of its agent are busy           | begins another session          |
| `gen_ai.input.messages`                                   | block ids, from each message    |
| `gen_ai.usage.*`                                          | tokens; else a quarter of bytes |
| `execute_tool` spans of the run, until a call starts      | tools of that call              |
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from tenuto.trace.assemble import assembled
from tenuto.trace.formats.otel_calls import calls_of
from tenuto.trace.formats.otel_spans import Span, span_of
from tenuto.trace.lines import bad, documents
from tenuto.trace.model import Trace
from tenuto.trace.parse import NotJsonError, parsed
from tenuto.trace.problem import Problem, Tell

_SHAPE = re.compile(rb'"(gen_ai\.[a-z_.]+|resourceSpans|resource_spans|span_id|spanId)"')


def sniff(begin: bytes) -> bool:
    """Whether the file begins with spans."""
    return _SHAPE.search(begin) is not None


def read(path: Path, tell: Tell) -> Iterator[Trace]:
    """Yield a trace for each run."""
    runs: dict[str, list[Span]] = {}
    lines: dict[tuple[str, str], int] = {}
    for line in documents(path, tell):
        try:
            found = list(_spans(parsed(line.data), {}))
        except (NotJsonError, RecursionError) as error:
            tell(bad(line, path.name, f"not spans: {error}", is_json=False))
            continue
        for raw, resource in found:
            span = _span(raw, resource, line.number)
            if isinstance(span, Span) and span.key in lines:
                span = f"span {span.key[1]} stands in line {lines[span.key]} too"
            if isinstance(span, str):
                tell(Problem(line.number, f"{span}; left out", path.name))
            elif span is not None:
                runs.setdefault(span.run, []).append(span)
                if span.key is not None:
                    lines[span.key] = line.number
                for key in span.uncounted:
                    tell(Problem(line.number, f"{key} is no count; taken as not said", path.name))
    for run_id, spans in runs.items():
        yield from assembled(calls_of(run_id, spans), path.name, tell, source="otel")


def _spans(raw: Any, resource: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield each span with its resource, wherever a collector puts them."""
    if isinstance(raw, list):
        for one in cast("list[Any]", raw):
            yield from _spans(one, resource)
        return
    if not isinstance(raw, dict):
        return
    part = cast("dict[str, Any]", raw)
    if "span_id" in part or "spanId" in part:
        yield part, part.get("resource_attributes", resource)
        return
    inner = part.get("resource")
    if isinstance(inner, dict):
        resource = cast("dict[str, Any]", inner).get("attributes", resource)
    for key in ("spans", "resourceSpans", "resource_spans", "scopeSpans", "scope_spans"):
        yield from _spans(part.get(key), resource)


def _span(raw: dict[str, Any], resource: Any, line: int) -> Span | str | None:
    try:
        return span_of(raw, resource, line)
    except (ValueError, RecursionError) as error:
        return f"not a span: {str(error).splitlines()[0]}"
