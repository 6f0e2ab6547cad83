"""The calls of a run from its spans, in sessions. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tenuto.trace.cut import BLOCK_BYTES, cut
from tenuto.trace.event import CallEvent, Fork
from tenuto.trace.events import Numbered
from tenuto.trace.formats.otel_spans import Span


@dataclass(slots=True)
class _Open:
    """A session that goes on: when its last call ended, and what that had for a prompt."""

    label: str
    agent: str
    turns: int = 0
    free_s: float = 0.0
    items: Sequence[bytes] = ()


def calls_of(run_id: str, spans: Sequence[Span]) -> Iterator[Numbered]:
    """Yield a run's calls in the order of their start."""
    ordered = sorted(spans, key=lambda span: span.start_s)
    tools = [span for span in ordered if span.tool]
    sessions: list[_Open] = []
    for span in ordered:
        if span.tool:
            continue
        session = _continued(sessions, span)
        root = sessions[0]
        is_child = session is not root
        fork = None
        if is_child and session.turns == 0 and _begins(root.items, span.items):
            fork = Fork(session_id=root.label, turn=max(0, root.turns - 1), inherits=True)
        ended = [
            t for t in tools if (t.end_s or t.start_s) <= span.start_s and t.agent == span.agent
        ]
        tools = [tool for tool in tools if tool not in ended]
        runs, input_bytes = cut(span.items)
        yield Numbered(
            span.line,
            CallEvent(
                run_id=run_id,
                session_id=session.label,
                parent_session_id=root.label if is_child else None,
                agent_name=session.agent,
                fork=fork,
                turn=session.turns,
                model_name=span.model,
                input_tokens=span.input_tokens,
                output_tokens=span.output_tokens,
                cached_tokens=span.cached_tokens,
                block_bytes=BLOCK_BYTES,
                input_bytes=input_bytes,
                blocks=runs,
                start_s=span.start_s,
                end_s=span.end_s,
                finish_reason=span.reason,
                error=span.error,
                tools=tuple(one.tool for one in ended if one.tool),
            ),
        )
        session.turns += 1
        session.free_s = max(session.free_s, span.end_s or span.start_s)
        session.items = span.items


def _continued(sessions: list[_Open], span: Span) -> _Open:
    """Return the agent's idle session that has most in common with a prompt, or another one."""
    idle = [one for one in sessions if one.agent == span.agent and one.free_s <= span.start_s]
    if idle:
        return max(idle, key=lambda one: _common(one.items, span.items))
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
