"""What the lines of a run say of each of its sessions, before it is put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tenuto.trace.event import CallEvent, Fork, RunEvent, SessionNote

Say = Callable[[int | None, str], None]
"""Takes the line and what is wrong with it."""


class Call(NamedTuple):
    """A call and the line that it stood in."""

    line: int | None
    event: CallEvent


@dataclass(slots=True)
class Draft:
    """One session in the making.

    Attributes:
        label: of the session.
        note: from the run's line; None when that does not describe the session.
        calls: of the session, every attempt, by turn and attempt.
        parent: label of the parent, as said; None at a root.
        fork: where the session began, as said.
        agent: role name.
    """

    label: str
    note: SessionNote | None = None
    calls: list[Call] = field(default_factory=list[Call])
    parent: str | None = None
    fork: Fork | None = None
    agent: str = ""

    @property
    def line(self) -> int | None:
        """The line of the session's first call."""
        return self.calls[0].line if self.calls else None


def drafts_of(about: RunEvent | None, calls: Mapping[tuple[str, int, int], Call]) -> list[Draft]:
    """Return the sessions: those that the run's line names, then the others by first call."""
    notes = about.sessions if about else ()
    drafts = {note.session_id: Draft(note.session_id, note) for note in notes}
    for (label, _, _), call in sorted(calls.items(), key=lambda one: one[1].event.start_s):
        drafts.setdefault(label, Draft(label)).calls.append(call)
    for draft in drafts.values():
        draft.calls.sort(key=lambda call: (call.event.turn, call.event.attempt))
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
