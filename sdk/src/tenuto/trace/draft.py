"""What the lines of a run say of each of its sessions, before it is put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from tenuto.trace.event import CallEvent, Fork, RunEvent, SessionNote
from tenuto.trace.order import Call, turns_in

Say = Callable[[int | None, str], None]
"""Takes the line and what is wrong with it."""


@dataclass(slots=True)
class Draft:
    """One session in the making.

    Attributes:
        label: of the session.
        note: from the run's line; None when that does not describe the session.
        turns: of the session, in order, each as its tries.
        parent: label of the parent, as said; None at a root.
        fork: where the session began, as said.
        agent: role name.
    """

    label: str
    note: SessionNote | None = None
    turns: list[list[Call]] = field(default_factory=list[list[Call]])
    parent: str | None = None
    fork: Fork | None = None
    agent: str = ""

    @property
    def calls(self) -> Iterator[Call]:
        """Every try of every turn."""
        return (call for tries in self.turns for call in tries)

    @property
    def line(self) -> int | None:
        """The line of the session's first call."""
        return next((call.line for call in self.calls), None)


def drafts_of(about: RunEvent | None, calls: Iterable[tuple[str, Call]]) -> list[Draft]:
    """Return the sessions: those that the run's line names, then the others by first call.

    Args:
        about: the run's line.
        calls: with the label of the session of each.
    """
    notes = about.sessions if about else ()
    drafts = {note.session_id: Draft(note.session_id, note) for note in notes}
    of: dict[str, list[Call]] = {}
    for label, call in sorted(calls, key=lambda one: one[1].event.start_s):
        drafts.setdefault(label, Draft(label))
        of.setdefault(label, []).append(call)
    for draft in drafts.values():
        is_recorded = about is None or about.source is None
        draft.turns = turns_in(of.get(draft.label, ()), is_recorded=is_recorded)
        _describe(draft)
    return list(drafts.values())


def _describe(draft: Draft) -> None:
    """Take what is said first: by the run's line, else by the earliest call that says it."""
    said: list[SessionNote | CallEvent] = [call.event for call in draft.calls]
    if draft.note:
        said.insert(0, draft.note)
    draft.fork = next((one.fork for one in said if one.fork), None)
    draft.parent = next((one.parent_session_id for one in said if one.parent_session_id), None)
    if draft.parent is None and draft.fork:
        draft.parent = draft.fork.session_id
    draft.agent = next((one.agent_name for one in said if one.agent_name), "")
