"""Who spawned whom in a run, and who waited for whom. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tenuto.trace.draft import Draft, Say
from tenuto.trace.model import Session, Turn


class _Parent(NamedTuple):
    label: str
    numbers: list[int]
    turns: tuple[Turn, ...]
    joins: Mapping[str, tuple[int | None, int]]


def placed(drafts: Sequence[Draft], say: Say) -> list[Draft]:
    """Return the sessions with each parent before its children, and else in their order.

    A session whose parent is not in the run, or is its own descendant, becomes a root.
    """
    by_label = {draft.label: draft for draft in drafts}
    for draft in drafts:
        if draft.parent is not None and draft.parent not in by_label:
            # The run's own session often makes no call: its agents begin before any of it.
            if draft.fork is None or draft.fork.turn is not None:
                what = f"session {draft.label}: no session {draft.parent}; taken as a root"
                say(draft.line, what)
            draft.parent, draft.fork = None, None
    ordered: dict[str, Draft] = {}
    for draft in drafts:
        line: dict[str, Draft] = {}
        above: Draft | None = draft
        while above is not None and above.label not in ordered:
            line[above.label] = above
            if above.parent in line:
                what = f"session {above.label} is its own ancestor; taken as a root"
                say(above.line, what)
                above.parent, above.fork = None, None
            above = by_label[above.parent] if above.parent is not None else None
        ordered.update(reversed(line.items()))
    return list(ordered.values())


class Family:
    """The sessions of a run as they are put together, parents first."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._parents: dict[str, _Parent] = {}

    def related(self, draft: Draft, turns: tuple[Turn, ...]) -> Session:
        """Return a session with its place in the run; its parent has been related before."""
        joins = {
            label: (call.line, index)
            for index, tries in enumerate(draft.turns)
            for call in tries
            for label in call.event.joins
        }
        numbers = [tries[0].event.turn for tries in draft.turns]
        self._parents[draft.label] = _Parent(draft.label, numbers, turns, joins)
        agent = draft.agent
        if draft.note is None and not agent:
            agent = "main" if draft.parent is None else "subagent"
        extra = draft.note.extra if draft.note else None
        if draft.parent is None:
            return Session(draft.label, agent, turns, extra=extra)
        parent = self._parents[draft.parent]
        spawned = self._spawned_after(draft, parent, turns)
        return Session(
            label=draft.label,
            agent=agent,
            turns=turns,
            parent=draft.parent,
            spawned_after=spawned,
            joined_before=self._joined_before(draft, parent, turns, spawned),
            fork="inherit" if draft.fork and draft.fork.inherits else "fresh",
            extra=extra,
        )

    def _spawned_after(self, draft: Draft, parent: _Parent, turns: Sequence[Turn]) -> int | None:
        """Return the index of the parent's turn that a session began after."""
        at_s = min((turn.start_s for turn in turns), default=-1.0)
        if draft.fork is None or draft.fork.session_id != draft.parent:
            before = [n for n, turn in enumerate(parent.turns) if turn.start_s <= at_s]
            return before[-1] if before else None
        if draft.fork.turn is None:
            return None
        number = max((n for n in parent.numbers if n <= draft.fork.turn), default=None)
        if number != draft.fork.turn:
            what = f"session {draft.label} forks after turn {draft.fork.turn} of {parent.label}"
            self._say(draft.line, f"{what}, which is missing; taken as after the one before it")
        if number is None:
            return None
        # A program that began anew has several turns of one number.
        same = [index for index, one in enumerate(parent.numbers) if one == number]
        before = [index for index in same if parent.turns[index].start_s <= at_s]
        return before[-1] if before else same[0]

    def _joined_before(
        self, draft: Draft, parent: _Parent, turns: Sequence[Turn], spawned: int | None
    ) -> int | None:
        """Return the index of the parent's turn that waited for a session's end.

        A call says so (`joins`). In a run whose line does not describe the session, the parent
        waited too when its next call after the spawn started after the session had ended.
        """
        after = 0 if spawned is None else spawned + 1
        if draft.label in parent.joins:
            line, index = parent.joins[draft.label]
            if index >= after:
                return index
            what = f"waits for session {draft.label} before it was spawned; taken as not waiting"
            self._say(line, what)
            return None
        if draft.note is not None or not turns or after >= len(parent.turns):
            return None
        end_s = max(turn.end_s for turn in turns)
        return after if parent.turns[after].start_s >= end_s else None
