"""Events into traces: group lines by run, whatever their order, and keep what is good."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tenuto.trace.draft import Say, drafts_of
from tenuto.trace.event import CallEvent, RunEvent
from tenuto.trace.events import Numbered, raised
from tenuto.trace.family import Family, placed
from tenuto.trace.model import Clock, Session, Trace
from tenuto.trace.order import Call
from tenuto.trace.problem import InFile, Problem, Tell
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
    | a turn again, after it was answered   | has it as a further turn, in the order of time  |
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
        self.calls: list[tuple[str | None, Call]] = []
        self.line: int | None = None
        self._at: dict[tuple[str, int, int, float], list[Call]] = {}

    @property
    def is_complete(self) -> bool:
        return self.about is not None and self.about.calls == len(self.calls)

    def add(self, session: str, call: Call) -> Call | None:
        """Take a call, but for one that was there: return that."""
        event = call.event
        same = self._at.setdefault((session, event.turn, event.attempt, event.start_s), [])
        for one in same:
            if one.event == event:
                return one
        same.append(call)
        self.calls.append((session, call))
        return None


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
        tell(Problem(line, what, line.name if isinstance(line, InFile) else name))

    def made(run_id: str, group: _Group) -> Trace:
        if group.about is not None and group.about.calls not in (None, len(group.calls)):
            what = f"run {run_id} should have {group.about.calls} calls, has {len(group.calls)}"
            say(group.line, what)
        return _trace(run_id, group, source, say)

    groups: dict[str, _Group] = {}
    done: set[str] = set()
    full: str | None = None
    for numbered in events:
        run_id = numbered.event.run_id
        # Only a line of another run ends one: it may have more calls than its line says.
        if full is not None and run_id != full:
            done.add(full)
            yield made(full, groups.pop(full))
            full = None
        if run_id in done:
            say(numbered.line, f"run {run_id} was complete before this line; left out")
            continue
        group = groups.setdefault(run_id, _Group())
        _add(group, numbered, say)
        if group.is_complete:
            full = run_id
    for run_id, group in groups.items():
        yield made(run_id, group)


def _add(group: _Group, numbered: Numbered, say: Say) -> None:
    line, event = numbered
    if isinstance(event, RunEvent):
        if group.about is not None:
            say(line, f"run {event.run_id} has a run line before; left out")
        else:
            group.about, group.line = event, line
        return
    session = event.session_id
    if session is None:
        # Without one there is nothing that could tell a repetition from another call.
        group.calls.append((None, Call(line, event)))
    elif (before := group.add(session, Call(line, event))) is not None:
        what = (
            f"turn {event.turn}, attempt {event.attempt} of session {session} stands in line "
            f"{before.line} too; left out"
        )
        say(line, what)


def _trace(run_id: str, group: _Group, source: str, say: Say) -> Trace:
    about = group.about

    def tell(line: int | None, what: str) -> None:
        # A session without calls is known by the run's line alone.
        say(group.line if line is None else line, what)

    calls = [call for _, call in group.calls]
    times, sizes = times_of(about, calls), sizes_of(about, calls, say)
    clock = _CLOCKS.get((about and about.clock) or "", "absolute")
    sessions: list[Session] = []
    family = Family(tell)
    for draft in placed(drafts_of(about, _labelled(group)), tell):
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


def _labelled(group: _Group) -> list[tuple[str, Call]]:
    """Return the calls with the label of the session of each, one of its own where it has none."""
    taken = {session for session, _ in group.calls}
    taken.update(note.session_id for note in (group.about.sessions if group.about else ()))
    found: list[tuple[str, Call]] = []
    for place, (session, call) in enumerate(group.calls):
        label = f"call-{place}" if session is None else session
        while session is None and label in taken:
            label = f"{label}#"
        found.append((label, call))
    return found


def _unnumbered(events: Iterable[CallEvent | RunEvent]) -> Iterator[Numbered]:
    for event in events:
        yield Numbered(None, event)
