"""One GenAI span as a value, whichever way its exporter wrote it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from tenuto.trace.formats.text import seconds_of

_CALLS = frozenset({"chat", "text_completion", "generate_content"})
_RUN_KEYS = ("gen_ai.conversation.id", "session.id", "exgentic.session.id")


class Span(NamedTuple):
    """A model call or a tool.

    Attributes:
        line: where its document begins.
        run: id of its run.
        agent: whose it is.
        is_tool: whether it is a tool's.
        start_s: since 1970.
        end_s: since 1970.
        attributes: of the span, as plain values.
        is_error: by its status.
    """

    line: int
    run: str
    agent: str
    is_tool: bool
    start_s: float
    end_s: float | None
    attributes: Mapping[str, Any]
    is_error: bool


def span_of(raw: Mapping[str, Any], resource: Any, line: int) -> Span | str | None:
    """Return a span; a text that says what is wrong with it; None when it is neither."""
    attributes = _plain(raw.get("attributes", {}))
    operation = attributes.get("gen_ai.operation.name")
    is_tool = operation == "execute_tool"
    if not is_tool and operation not in _CALLS:
        return None
    span_id = raw.get("span_id", raw.get("spanId"))
    start_s = seconds_of(raw.get("start_time", raw.get("startTimeUnixNano")))
    if start_s is None:
        return f"span {span_id} has no start that can be read"
    trace_id = str(raw.get("trace_id", raw.get("traceId", "")))
    service = _plain(resource).get("service.name")
    names = [attributes.get("gen_ai.agent.id"), attributes.get("gen_ai.agent.name"), service]
    status: Mapping[str, Any] = raw.get("status") or {}
    return Span(
        line=line,
        run=next((str(attributes[key]) for key in _RUN_KEYS if attributes.get(key)), trace_id),
        agent=next((str(name) for name in names if name), "main"),
        is_tool=is_tool,
        start_s=start_s,
        end_s=seconds_of(raw.get("end_time", raw.get("endTimeUnixNano"))),
        attributes=attributes,
        is_error=status.get("code") in (2, "STATUS_CODE_ERROR", "ERROR"),
    )


def messages_of(span: Span) -> list[Any]:
    """Return the prompt's items: instructions first, then each message."""
    items: list[Any] = []
    for key in ("gen_ai.tool.definitions", "gen_ai.system_instructions", "gen_ai.input.messages"):
        value = span.attributes.get(key)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                value = [value]
        if isinstance(value, list):
            items.extend(cast("list[Any]", value))
    return items


def count_of(span: Span, *keys: str) -> int | None:
    """Return the first of some attributes that is a count."""
    for key in keys:
        value = span.attributes.get(key)
        if isinstance(value, str) and value.isdecimal():
            return int(value)
        if isinstance(value, int | float) and value >= 0:
            return int(value)
    return None


def _plain(attributes: Any) -> dict[str, Any]:
    """Return attributes as a mapping; OTLP has them as a list of typed values."""
    if isinstance(attributes, dict):
        return cast("dict[str, Any]", attributes)
    if not isinstance(attributes, list):
        return {}
    pairs = cast("Sequence[Mapping[str, Any]]", attributes)
    return {str(one.get("key")): _value(one.get("value")) for one in pairs}


def _value(typed: Any) -> Any:
    """Return a value of OTLP's JSON, `{"stringValue": ...}`, without its type."""
    pairs = list(cast("dict[str, Any]", typed).items()) if isinstance(typed, dict) else []
    if len(pairs) != 1:
        return cast("Any", typed)
    kind, value = pairs[0]
    if kind == "arrayValue":
        return [_value(one) for one in value.get("values", [])]
    return value
