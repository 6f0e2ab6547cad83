"""The scopes of a trace's sessions, so that its calls say whose they are."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import cast, get_args

import tenuto
from tenuto.trace.model import Trace
from tenuto.turn import Phase

_PHASES = frozenset(cast("tuple[str, ...]", get_args(Phase)))


class Marks:
    """One run, with an agent for each session of a trace, nested as they were spawned.

    Args:
        trace: whose sessions they are.
        name: of the run.
    """

    def __init__(self, trace: Trace, name: str) -> None:
        self._sessions = trace.sessions
        self._run = tenuto.run(name)
        agents: dict[str, tenuto.Agent] = {}
        siblings: Counter[tuple[str | None, str]] = Counter()
        for session in trace.sessions:
            with ExitStack() as parents:
                if session.parent is not None:
                    parents.enter_context(agents[session.parent])
                agents[session.label] = self._run.agent(
                    session.agent,
                    instance=siblings[session.parent, session.agent],
                    fork=session.fork,
                )
            siblings[session.parent, session.agent] += 1
        self._agents = list(agents.values())

    def entered(self, session: int, turn: int) -> ExitStack:
        """Enter the scope of a call; leave it by the returned context."""
        phase = self._sessions[session].turns[turn].phase
        with ExitStack() as stack:
            stack.enter_context(self._agents[session])
            if phase in _PHASES:
                stack.enter_context(tenuto.turn(phase=cast("Phase", phase)))
            return stack.pop_all()

    def ended(self, session: int) -> None:
        """Say that a session has had its last turn."""
        self._agents[session].end()

    def end(self) -> None:
        """Say that the run has finished."""
        self._run.end()
