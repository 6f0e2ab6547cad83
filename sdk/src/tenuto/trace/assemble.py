"""Events into traces: group lines by run, whatever their order, and keep what is good."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tenuto.trace.draft import Call, Say, drafts_of
from tenuto.trace.event import CallEvent, RunEvent
from tenuto.trace.events import Numbered, raised
from tenuto.trace.family import Family, placed
from tenuto.trace.model import Clock, Session, Trace
from tenuto.trace.problem import Problem, Tell
from tenuto.trace.times import times_of
from tenuto.trace.turns import sizes_of, turns_of

_CLOCKS: dict[str, Clock] = {
    "since-spawn": "since-spawn",
    "since-spawn-from-end": "since-spawn-from-end",
}


def traces_of(
    events: Iterable[CallEvent | RunEvent], on_problem: Tell | None = None
) -> Iterator[Trace]:
    """Yield the traces that events say, each as soon as its run line says that it is complete.

    | events                                | the trace                                       |
    |---------------------------------------|-------------------------------------------------|
    | a call in no session                  | is a session of its own                         |
    | several attempts of a turn            | has the last that was answered                  |
    | a line twice                          | has the first                                   |
    | a turn number that is missing         | goes on with the next                           |
    | no `fork`, but a parent               | forks after the parent's last call before it    |
    | no `joins`, in a run that was recorded | joins where the parent waited: it made no call  |
    |                                       | until the child had ended                       |
    | an unknown parent, or a cycle         | has the session as a root                       |
    | an end before its start               | ends when it starts                             |

    Times of a recorded run are moved so that its first call is at 0.

    Raises:
        TraceError: after the last trace, without `on_problem`, when something was put right.
    """
    return raised(lambda tell: assembled(_unnumbered(events), "", tell), on_problem)


class _Group:
    """The lines of one run so far."""

    def __init__(self) -> None:
        self.about: RunEvent | None = None
        self.calls: dict[tuple[str, int, int], Call] = {}
        self.line: int | None = None

    @property
    def is_complete(self) -> bool:
        return self.about is not None and self.about.calls == len(self.calls)


def assembled(
    events: Iterable[Numbered], name: str, tell: Tell, *, source: str = "tenuto"
) -> Iterator[Trace]:
    """Yield the traces of numbered events.

    Args:
        events: in any order.
        name: of their file.
        tell: takes each problem.
        source: name of the format that they were read from, where no run line says it.
    """

    def say(line: int | None, what: str) -> None:
        tell(Problem(line, what, name))

    groups: dict[str, _Group] = {}
    done: set[str] = set()
    for numbered in events:
        run_id = numbered.event.run_id
        if run_id in done:
            say(numbered.line, f"run {run_id} was complete before this line; left out")
            continue
        group = groups.setdefault(run_id, _Group())
        _add(group, numbered, say)
        if group.is_complete:
            done.add(run_id)
            yield _trace(run_id, groups.pop(run_id), source, say)
    for run_id, group in groups.items():
        if group.about is not None and group.about.calls is not None:
            what = f"run {run_id} should have {group.about.calls} calls, has {len(group.calls)}"
            say(group.line, what)
        yield _trace(run_id, group, source, say)


def _add(group: _Group, numbered: Numbered, say: Say) -> None:
    line, event = numbered
    if isinstance(event, RunEvent):
        if group.about is not None:
            say(line, f"run {event.run_id} has a run line before; left out")
        else:
            group.about, group.line = event, line
        return
    # Without a session there is nothing that could tell a repetition from another call.
    session = f"call-{len(group.calls)}" if event.session_id is None else event.session_id
    place = (session, event.turn, event.attempt)
    if event.session_id is None:
        place = (session, 0, 0)
    if place in group.calls:
        what = (
            f"turn {event.turn}, attempt {event.attempt} of session {session} stands in line "
            f"{group.calls[place].line} too; left out"
        )
        say(line, what)
        return
    group.calls[place] = Call(line, event)


def _trace(run_id: str, group: _Group, source: str, say: Say) -> Trace:
    about = group.about
    calls = list(group.calls.values())
    times, sizes = times_of(about, calls), sizes_of(about, calls, say)
    clock = _CLOCKS.get((about and about.clock) or "", "absolute")
    sessions: list[Session] = []
    family = Family(say)
    for draft in placed(drafts_of(about, group.calls), say):
        turns = turns_of(draft, times, sizes, say)
        session = family.related(draft, turns)
        sessions.append(session if draft.parent is None else replace(session, clock=clock))
    return Trace(
        id=run_id,
        block_size=sizes.block_size,
        sessions=tuple(sessions),
        block_scope=sizes.scope,
        source=(about and about.source) or source,
        extra=about.extra if about else None,
    )


def _unnumbered(events: Iterable[CallEvent | RunEvent]) -> Iterator[Numbered]:
    for event in events:
        yield Numbered(None, event)
