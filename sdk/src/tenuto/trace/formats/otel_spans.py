"""One GenAI span as a value, whichever way its exporter wrote it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from tenuto.trace.event import ToolSpan
from tenuto.trace.formats.text import canonical, count_of, seconds_of
from tenuto.trace.parse import NotJsonError, parsed

# A tuple, because an operation may be something without a hash.
_CALLS = ("chat", "text_completion", "generate_content")
_RUN_KEYS = ("gen_ai.conversation.id", "session.id", "exgentic.session.id")
_PROMPT_KEYS = ("gen_ai.tool.definitions", "gen_ai.system_instructions", "gen_ai.input.messages")
_INPUT_KEYS = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
_OUTPUT_KEYS = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
_CACHED_KEYS = ("gen_ai.usage.cache_read.input_tokens",)
_ANSWER_KEYS = ("gen_ai.output.text", "gen_ai.output.messages")


class Span(NamedTuple):
    """A model call or a tool.

    Attributes:
        line: where its document begins.
        key: its trace's and its own id; None for a span without both.
        run: id of its run.
        agent: whose it is.
        start_s: since 1970.
        end_s: since 1970.
        tool: of a tool; None for a call.
        items: canonical bytes of the prompt: instructions first, then each message.
        model: as requested.
        input_tokens: as counted by the server.
        output_tokens: as counted, else a quarter of the answer's bytes.
        cached_tokens: as counted by the server.
        reason: why the answer ended.
        error: kind of the failure.
        uncounted: attributes that should be counts of tokens and are none.
    """

    line: int
    key: tuple[str, str] | None
    run: str
    agent: str
    start_s: float
    end_s: float | None
    tool: ToolSpan | None = None
    items: tuple[bytes, ...] = ()
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reason: str | None = None
    error: str | None = None
    uncounted: tuple[str, ...] = ()


def span_of(raw: Mapping[str, Any], resource: Any, line: int) -> Span | str | None:
    """Return a span; a text that says what is wrong with it; None when it is neither."""
    said = _plain(raw.get("attributes"))
    operation = said.get("gen_ai.operation.name")
    is_tool = operation == "execute_tool"
    if not is_tool and operation not in _CALLS:
        return None
    span_id = raw.get("span_id", raw.get("spanId"))
    start_s = seconds_of(raw.get("start_time", raw.get("startTimeUnixNano")))
    if start_s is None:
        return f"span {span_id} has no start that can be read"
    trace_id = str(raw.get("trace_id", raw.get("traceId", "")))
    service = _plain(resource).get("service.name")
    names = [said.get("gen_ai.agent.id"), said.get("gen_ai.agent.name"), service]
    status = raw.get("status")
    code = cast("dict[str, Any]", status).get("code") if isinstance(status, dict) else status
    is_error = code in (2, "STATUS_CODE_ERROR", "ERROR")
    span = Span(
        line=line,
        key=(trace_id, str(span_id)) if trace_id and span_id else None,
        run=next((str(said[key]) for key in _RUN_KEYS if said.get(key)), trace_id),
        agent=next((str(name) for name in names if name), "main"),
        start_s=start_s,
        end_s=seconds_of(raw.get("end_time", raw.get("endTimeUnixNano"))),
    )
    if is_tool:
        return span._replace(tool=_tool(said, span, is_error=is_error))
    reasons: Any = said.get("gen_ai.response.finish_reasons")
    if isinstance(reasons, list):
        reasons = next(iter(cast("list[Any]", reasons)), None)
    return span._replace(
        items=tuple(map(canonical, _messages(said))),
        model=_text(said.get("gen_ai.request.model")),
        input_tokens=_first(said, *_INPUT_KEYS),
        output_tokens=_written(said),
        cached_tokens=_first(said, *_CACHED_KEYS),
        reason=_text(reasons),
        error=_text(said.get("error.type")) or ("error" if is_error else None),
        uncounted=tuple(
            key
            for key in (*_INPUT_KEYS, *_OUTPUT_KEYS, *_CACHED_KEYS)
            if said.get(key) is not None and count_of(said[key]) is None
        ),
    )


def _tool(said: Mapping[str, Any], span: Span, *, is_error: bool) -> ToolSpan:
    return ToolSpan(
        name=_text(said.get("gen_ai.tool.name")) or "",
        tool_class=_text(said.get("gen_ai.tool.type")),
        tool_call_id=_text(said.get("gen_ai.tool.call.id")),
        start_s=span.start_s,
        end_s=span.end_s,
        is_error=is_error,
    )


def _messages(said: Mapping[str, Any]) -> list[Any]:
    items: list[Any] = []
    for key in _PROMPT_KEYS:
        value = said.get(key)
        if isinstance(value, str):
            try:
                value = parsed(value)
            except NotJsonError:
                value = [value]
        if isinstance(value, list):
            items.extend(cast("list[Any]", value))
        elif value is not None:
            items.append(value)
    return items


def _written(said: Mapping[str, Any]) -> int | None:
    written = _first(said, *_OUTPUT_KEYS)
    answer = next((said[key] for key in _ANSWER_KEYS if said.get(key) is not None), None)
    if written is None and answer is not None:
        return round(len(canonical(answer)) / 4)
    return written


def _first(said: Mapping[str, Any], *keys: str) -> int | None:
    """Return the first of some attributes that is a count."""
    return next((count for key in keys if (count := count_of(said.get(key))) is not None), None)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _plain(attributes: Any) -> dict[str, Any]:
    """Return attributes as a mapping; OTLP has them as a list of typed values."""
    if isinstance(attributes, dict):
        return cast("dict[str, Any]", attributes)
    found: dict[str, Any] = {}
    for one in cast("list[Any]", attributes) if isinstance(attributes, list) else ():
        if isinstance(one, dict):
            pair = cast("dict[str, Any]", one)
            found[str(pair.get("key"))] = _value(pair.get("value"))
    return found


def _value(typed: Any) -> Any:
    """Return a value of OTLP's JSON, `{"stringValue": ...}`, without its type."""
    pairs = list(cast("dict[str, Any]", typed).items()) if isinstance(typed, dict) else []
    if len(pairs) != 1:
        return cast("Any", typed)
    kind, value = pairs[0]
    if kind != "arrayValue":
        return value
    values = cast("dict[str, Any]", value).get("values") if isinstance(value, dict) else value
    return [_value(one) for one in cast("list[Any]", values)] if isinstance(values, list) else []
