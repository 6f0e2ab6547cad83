"""Lines of the trace file into events, and a trace into the events that say it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError

from tenuto.trace.event import VERSION, CallEvent, Event, Fork, RunEvent, SessionNote
from tenuto.trace.lines import Line, bad, lines
from tenuto.trace.model import Session, Trace, Turn
from tenuto.trace.parse import validated
from tenuto.trace.problem import InFile, Problem, Tell, TraceError

_T = TypeVar("_T")
_EVENT: TypeAdapter[CallEvent | RunEvent] = TypeAdapter(Event)


class Numbered(NamedTuple):
    """An event and the line that it stood in."""

    line: int | None
    event: CallEvent | RunEvent


def read_events(path: str | Path, on_problem: Tell | None = None) -> Iterator[CallEvent | RunEvent]:
    """Yield the events of a file in the own format, as they stand in it.

    Args:
        path: JSON lines, compressed or not.
        on_problem: takes each problem; without it they are raised at the end.

    Raises:
        TraceError: after the last event, without `on_problem`, when lines are not events.
    """
    for _, event in raised(lambda tell: numbered_events(Path(path), tell), on_problem):
        yield event


def numbered_events(path: Path, tell: Tell) -> Iterator[Numbered]:
    """Yield the events of a file with their lines; what is not one is told and left out."""
    for line in lines(path, tell):
        try:
            yield Numbered(InFile(line.number, path.name), validated(_EVENT, line.data))
        except ValidationError as error:
            tell(_problem(line, path.name, error))


def _problem(line: Line, name: str, error: ValidationError) -> Problem:
    faults = error.errors(include_url=False, include_context=False)
    shown = "; ".join(_fault(fault["loc"], fault["msg"]) for fault in faults[:3])
    for fault in faults:
        if fault["loc"][-1:] == ("v",):
            shown = f"written in version {fault['input']!r} of the format, this reads {VERSION}"
    is_json = faults[0]["type"] != "json_invalid"
    return bad(line, name, f"not an event: {shown}", is_json=is_json)


def _fault(place: tuple[int | str, ...], message: str) -> str:
    # The first part of a place is the kind of the event, which the rest implies.
    return ": ".join(filter(None, [".".join(map(str, place[1:])), message]))


def raised(read: Callable[[Tell], Iterator[_T]], on_problem: Tell | None) -> Iterator[_T]:
    """Yield what `read` does; raise its problems at the end when nobody takes them."""
    if on_problem is not None:
        yield from read(on_problem)
        return
    problems: list[Problem] = []
    yield from read(problems.append)
    if faults := [problem for problem in problems if not problem.is_note]:
        raise TraceError(faults)


def line_of(event: CallEvent | RunEvent) -> bytes:
    """Return an event as a line of a trace file, without the end of the line."""
    said = event.model_dump_json(exclude_defaults=True).encode()
    # What has its default is left out, but a line must say what it is.
    return b'{"kind":"%s","v":%d,%s' % (event.kind.encode(), event.v, said[1:])


def events_of(trace: Trace) -> Iterator[CallEvent | RunEvent]:
    """Yield the events that say a trace: its run, then its calls in the order of their start."""
    clocks = [session.clock for session in trace.sessions if session.clock != "absolute"]
    yield RunEvent(
        run_id=trace.id,
        source=trace.source or "tenuto",
        clock=clocks[0] if clocks else None,
        block_size=trace.block_size,
        calls=trace.requests,
        sessions=tuple(map(_note, trace.sessions)),
        extra=_plain(trace.extra),
    )
    joins: dict[tuple[str, int], list[str]] = {}
    for session in trace.sessions:
        if session.parent is not None and session.joined_before is not None:
            joins.setdefault((session.parent, session.joined_before), []).append(session.label)
    calls = [
        (turn.start_s, place, index)
        for place, session in enumerate(trace.sessions)
        for index, turn in enumerate(session.turns)
    ]
    for _, place, index in sorted(calls):
        session = trace.sessions[place]
        waited = tuple(joins.get((session.label, index), ()))
        yield _call(trace, session, index, session.turns[index], waited)


def _note(session: Session) -> SessionNote:
    fork = None
    if session.parent is not None:
        fork = Fork(
            session_id=session.parent,
            turn=session.spawned_after,
            inherits=session.fork == "inherit",
        )
    return SessionNote(
        session_id=session.label,
        parent_session_id=session.parent,
        agent_name=session.agent,
        fork=fork,
        extra=_plain(session.extra),
    )


def _call(
    trace: Trace, session: Session, index: int, turn: Turn, joins: tuple[str, ...]
) -> CallEvent:
    return CallEvent(
        run_id=trace.id,
        session_id=session.label,
        parent_session_id=session.parent,
        agent_name=session.agent,
        joins=joins,
        turn=index,
        attempt=turn.attempt,
        phase=turn.phase,
        model_name=turn.model_name,
        input_tokens=turn.input_tokens,
        output_tokens=turn.output_tokens,
        cached_tokens=turn.cached_tokens,
        guessed=turn.guessed,
        block_size=trace.block_size,
        blocks=turn.blocks,
        block_scope=trace.block_scope,
        start_s=turn.start_s,
        first_token_s=turn.first_token_s,
        end_s=turn.end_s,
        finish_reason=turn.finish_reason,
        tools=turn.tools,
        extra=_plain(turn.extra),
    )


def _plain(extra: Any) -> dict[str, Any] | None:
    return None if extra is None else dict(extra)
