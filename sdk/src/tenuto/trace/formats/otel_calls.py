"""The calls of a run from its spans, in sessions. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from tenuto.trace.cut import BLOCK_BYTES, cut
from tenuto.trace.event import CallEvent, Fork, ToolSpan
from tenuto.trace.events import Numbered
from tenuto.trace.formats.otel_spans import Span, count_of, messages_of
from tenuto.trace.formats.text import canonical


@dataclass(slots=True)
class _Open:
    """A session that goes on: when its last call ended, and what that had for a prompt."""

    label: str
    agent: str
    turns: int = 0
    free_s: float = 0.0
    items: list[bytes] = field(default_factory=list[bytes])


def calls_of(run_id: str, spans: Sequence[Span]) -> Iterator[Numbered]:
    """Yield a run's calls in the order of their start."""
    ordered = sorted(spans, key=lambda span: span.start_s)
    tools = [span for span in ordered if span.is_tool]
    sessions: list[_Open] = []
    for span in ordered:
        if span.is_tool:
            continue
        items = [canonical(item) for item in messages_of(span)]
        session = _continued(sessions, span, items)
        is_child = session is not sessions[0]
        root = sessions[0]
        fork = None
        if is_child and session.turns == 0 and _begins(root.items, items):
            fork = Fork(session_id=root.label, turn=max(0, root.turns - 1), inherits=True)
        ended = [
            t for t in tools if (t.end_s or t.start_s) <= span.start_s and t.agent == span.agent
        ]
        tools = [tool for tool in tools if tool not in ended]
        runs, input_bytes = cut(items)
        yield Numbered(
            span.line,
            _event(run_id, session, span, ended, fork).model_copy(
                update={
                    "parent_session_id": root.label if is_child else None,
                    "blocks": runs,
                    "input_bytes": input_bytes,
                }
            ),
        )
        session.turns += 1
        session.free_s = max(session.free_s, span.end_s or span.start_s)
        session.items = items


def _continued(sessions: list[_Open], span: Span, items: Sequence[bytes]) -> _Open:
    """Return the agent's idle session that has most in common with a prompt, or another one."""
    idle = [one for one in sessions if one.agent == span.agent and one.free_s <= span.start_s]
    if idle:
        return max(idle, key=lambda one: _common(one.items, items))
    same = sum(one.agent == span.agent for one in sessions)
    label = f"{span.agent}#{same + 1}" if same else span.agent
    sessions.append(_Open(label, span.agent))
    return sessions[-1]


def _common(left: Sequence[bytes], right: Sequence[bytes]) -> int:
    for count, (ours, theirs) in enumerate(zip(left, right, strict=False)):
        if ours != theirs:
            return count
    return min(len(left), len(right))


def _begins(before: Sequence[bytes], items: Sequence[bytes]) -> bool:
    return bool(before) and _common(before, items) == len(before)


def _event(
    run_id: str, session: _Open, span: Span, tools: Sequence[Span], fork: Fork | None
) -> CallEvent:
    reason: Any = span.attributes.get("gen_ai.response.finish_reasons")
    if isinstance(reason, list):
        reason = next(iter(cast("list[Any]", reason)), None)
    answer = span.attributes.get(
        "gen_ai.output.text", span.attributes.get("gen_ai.output.messages")
    )
    written = count_of(span, "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
    if written is None and answer is not None:
        written = round(len(canonical(answer)) / 4)
    return CallEvent(
        run_id=run_id,
        session_id=session.label,
        agent_name=session.agent,
        fork=fork,
        turn=session.turns,
        model_name=_text(span.attributes.get("gen_ai.request.model")),
        input_tokens=count_of(span, "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
        output_tokens=written,
        cached_tokens=count_of(span, "gen_ai.usage.cache_read.input_tokens"),
        block_bytes=BLOCK_BYTES,
        start_s=span.start_s,
        end_s=span.end_s,
        finish_reason=_text(reason),
        error=_text(span.attributes.get("error.type")) or ("error" if span.is_error else None),
        tools=tuple(map(_tool, tools)),
    )


def _tool(span: Span) -> ToolSpan:
    return ToolSpan(
        name=_text(span.attributes.get("gen_ai.tool.name")) or "",
        tool_class=_text(span.attributes.get("gen_ai.tool.type")),
        tool_call_id=_text(span.attributes.get("gen_ai.tool.call.id")),
        start_s=span.start_s,
        end_s=span.end_s,
        is_error=span.is_error,
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
