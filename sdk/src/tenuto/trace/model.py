"""The canonical trace: frozen values that every reader makes and every user takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tenuto.trace.event import Guessed, ToolSpan

Runs = tuple[tuple[int, int], ...]
"""Block ids as runs: (first id, how many), each id one more than the one before."""

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
        blocks: ids of the full blocks of the prompt, in order, as runs. Equal ids are equal
            tokens, given equal ids before them.
        input_tokens: length of the prompt in tokens, >= blocks * block size.
        output_tokens: tokens that the model wrote; 0 where the recording has none.
        start_s: when the call was made, in seconds since the trace's start.
        end_s: when the answer was complete; `start_s` where the recording has no
            duration (about 9 % of the Weka corpus).
        first_token_s: when its first token came; None where the recording does not say.
        cached_tokens: by the recording server's account; None where it does not say.
        phase: what opened the turn, one of docs/protocol.md's phases.
        finish_reason: of the answer, as the API says it.
        attempt: of the try that was answered.
        model_name: as requested.
        tools: what ran since the session's last call.
        extra: what the source has and this model has no word for.
        guessed: which of `input_tokens` and `output_tokens` nobody counted: guessed from
            bytes, or 0 where there are none.
    """

    blocks: Runs
    input_tokens: int
    output_tokens: int
    start_s: float
    end_s: float
    first_token_s: float | None = None
    cached_tokens: int | None = None
    phase: str | None = None
    finish_reason: str | None = None
    attempt: int = 0
    model_name: str | None = None
    tools: tuple[ToolSpan, ...] = ()
    extra: Mapping[str, Any] | None = None
    guessed: tuple[Guessed, ...] = ()

    @property
    def block_count(self) -> int:
        """How many full blocks the prompt has."""
        return sum(length for _, length in self.blocks)

    @property
    def block_ids(self) -> tuple[int, ...]:
        """The ids one by one; a prompt of 142,000 tokens has some 2,200."""
        return tuple(first + n for first, length in self.blocks for n in range(length))


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
        fork: `inherit` when it begins with the parent's context, else `fresh`.
        clock: which rule gave the times. A record of the import, not part of the
            trace's identity, so it is left out of comparisons.
        extra: what the source has and this model has no word for.
    """

    label: str
    agent: str
    turns: tuple[Turn, ...]
    parent: str | None = None
    spawned_after: int | None = None
    joined_before: int | None = None
    fork: Literal["fresh", "inherit"] = "fresh"
    clock: Clock = field(default="absolute", compare=False)
    extra: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """One recorded run of an agent program.

    Attributes:
        id: name of the trace in its source, such as the run's id.
        block_size: tokens in a block, >= 1.
        sessions: the root first, then the others; a parent stands before its children.
        block_scope: `run` when block ids mean nothing outside of the trace; `global` when
            equal ids are equal blocks in all traces of their file.
        source: name of the format that it was read from.
        extra: what the source has and this model has no word for.

    Raises:
        ValueError: when a label repeats, a parent does not stand before its child, or
            the turns of spawn and join are not the parent's, in this order.
    """

    id: str
    block_size: int
    sessions: tuple[Session, ...]
    block_scope: Literal["run", "global"] = "run"
    source: str = ""
    extra: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        turns_of: dict[str, int] = {}
        for session in self.sessions:
            if fault := _fault(session, turns_of):
                message = f"trace {self.id}, session {session.label}: {fault}"
                raise ValueError(message)
            turns_of[session.label] = len(session.turns)

    @property
    def space(self) -> str:
        """Where its block ids mean the same: equal in traces that share them, else its id."""
        return "" if self.block_scope == "global" else self.id

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
