"""The canonical trace: frozen values that every reader makes and every user takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Clock = Literal["absolute", "since-spawn", "since-spawn-from-end"]
"""How a reader understood a subagent's times.

`absolute`: seconds since the trace's start. `since-spawn`: since the subagent's
entry, which stands at its spawn. `since-spawn-from-end`: since the spawn, which is
the entry's time less its duration, because the entry stands at its end.
"""


@dataclass(frozen=True, slots=True)
class Turn:
    """One recorded model call.

    Attributes:
        block_ids: one id for each full block of the prompt, in order. Equal ids are
            equal tokens, given equal ids before them.
        input_tokens: length of the prompt in tokens, >= blocks * block size.
        output_tokens: tokens that the model wrote; 0 where the recording has none.
        start_s: when the call was made, in seconds since the trace's start.
        end_s: when the answer was complete; `start_s` where the recording has no
            duration (about 9 % of the Weka corpus).
    """

    block_ids: tuple[int, ...]
    input_tokens: int
    output_tokens: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Session:
    """One linear history: the root agent, or one subagent instance.

    Attributes:
        label: name of the session, unique in its trace.
        agent: role name; several sessions may share one.
        turns: the session's calls, in order.
        parent: label of the session that spawned this one; None at the root.
        spawned_after: index of the parent's turn that spawned it; None when it
            started before the parent's first turn, or has no parent.
        joined_before: index of the parent's turn that waited for its end; None when
            the parent went on without it.
        clock: which rule gave the times. A record of the import, not part of the
            trace's identity, so it is left out of comparisons.
    """

    label: str
    agent: str
    turns: tuple[Turn, ...]
    parent: str | None = None
    spawned_after: int | None = None
    joined_before: int | None = None
    clock: Clock = field(default="absolute", compare=False)


@dataclass(frozen=True, slots=True)
class Trace:
    """One recorded run of an agent program.

    Attributes:
        id: name of the trace in its source. Block ids mean nothing outside of it.
        block_size: tokens in a block, >= 1.
        sessions: the root first, then the others; a parent stands before its children.

    Raises:
        ValueError: when a label repeats, a parent does not stand before its child, or
            the turns of spawn and join are not the parent's, in this order.
    """

    id: str
    block_size: int
    sessions: tuple[Session, ...]

    def __post_init__(self) -> None:
        turns_of: dict[str, int] = {}
        for session in self.sessions:
            if fault := _fault(session, turns_of):
                message = f"trace {self.id}, session {session.label}: {fault}"
                raise ValueError(message)
            turns_of[session.label] = len(session.turns)

    @property
    def requests(self) -> int:
        """How many model calls all sessions make together."""
        return sum(len(session.turns) for session in self.sessions)


def children_of(trace: Trace, label: str | None) -> tuple[Session, ...]:
    """Return the sessions that `label` spawned (None: the roots), in trace order."""
    return tuple(session for session in trace.sessions if session.parent == label)


def _fault(session: Session, turns_of: Mapping[str, int]) -> str | None:
    """Return what is wrong with a session, given the number of turns of those before it."""
    if session.label in turns_of:
        return "another session has its label"
    if session.parent is None:
        return None
    if session.parent not in turns_of:
        return f"its parent {session.parent} does not stand before it"
    turns = turns_of[session.parent]
    spawned = -1 if session.spawned_after is None else session.spawned_after
    if not -1 <= spawned < turns:
        return f"spawned after turn {spawned}, but its parent has {turns} turns"
    if session.joined_before is not None and not spawned < session.joined_before < turns:
        return (
            f"joined before turn {session.joined_before}, spawned after turn {spawned} of {turns}"
        )
    return None
