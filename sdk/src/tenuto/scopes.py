"""The scopes that a program opens: a run, its agents, and what it says of its turns."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Self

from tenuto import process
from tenuto.context import Scope, current_call, current_session
from tenuto.endings import end_session
from tenuto.errors import ConfigError
from tenuto.expect import Expectation
from tenuto.identity import ID_BYTES, derive_run_id, derive_session_id
from tenuto.install_key import install_key
from tenuto.session import Fork, Hints, Session, agents_of, checked, child_of
from tenuto.turn import Kind, Phase

_FORKS = ("fresh", "inherit")
_KINDS = ("main", "subagent", "workflow", "compaction", "auxiliary")


class Agent(Scope):
    """One agent of a run: planner, tool caller and verifier are three sessions."""

    @property
    def agent(self) -> str:
        """The role's name, a path when nested (`planner/search`)."""
        return self._session.agent


class Run(Scope):
    """One top-level task of an agent program, shared by all its agents.

    Calls made in the run outside every agent belong to its root session. A run without a
    name ends with its scope: no one can enter it again.
    """

    def agent(
        self,
        name: str,
        *,
        instance: str | int = 0,
        fork: Fork = "fresh",
        kind: Kind | None = None,
        expect: Expectation | None = None,
        ttl: int | None = None,
        prio: int | None = None,
        ends: bool = False,
    ) -> Agent:
        """Return the scope of an agent: entered again, it is the same session going on.

        Args:
            name: the role, such as "planner".
            instance: tells parallel instances of one agent apart, such as a tool call id.
            fork: "inherit" when the agent's first prompt starts with its parent's
                context, so that the server may start it at the parent's home.
            kind: `main`, `subagent`, `workflow`, `compaction` or `auxiliary` (a title, a
                summary, a guardrail: such a session leaves the main one's lease alone).
            expect: what ends the wait after each of its turns, see `tenuto.tool`.
            ttl: how many seconds its cache is worth keeping between turns.
            prio: -8 to 8, higher is more urgent.
            ends: the session has finished when the scope is left, see `end`.

        Returns:
            A scope whose parent is the agent that encloses this call in the same run,
            or else the run's root session. It is enough by itself: the run's own scope
            need not be open.

        Raises:
            ConfigError: a value is outside its limits; the message names them.
        """
        if fork not in _FORKS:
            raise ConfigError(f'fork is "fresh" or "inherit", got {fork!r}')
        if kind is not None and kind not in _KINDS:
            raise ConfigError(f"kind is one of {_KINDS}, got {kind!r}")
        enclosing = current_session()
        if enclosing is None or enclosing.run_id != self.run_id:
            enclosing = self._session
        session = child_of(enclosing, str(name), str(instance), fork=fork, kind=kind)
        return Agent(session, checked(Hints(None, expect, ttl, prio)), ends=ends)

    def run_config(self, user_config: Any = None) -> Any:
        """Return a `RunConfig` of openai-agents that makes each agent a session of this run.

        Args:
            user_config: the program's own, which is not changed; its
                `call_model_input_filter` goes on to be called.

        Raises:
            ConfigError: openai-agents is not installed, or `user_config` is not a `RunConfig`.
        """
        # Programs without the framework load nothing for it.
        from tenuto.adapters.agents import run_config  # noqa: PLC0415

        return run_config(self._session, user_config)

    def end(self) -> None:
        """Say that the run has finished, with all agents that this process has made."""
        super().end()
        for session_id in agents_of(self._session):
            state = process.SESSIONS.known(session_id)
            if state is not None:
                end_session(session_id, state)


def run(name: str | int | None = None) -> Run:
    """Return the scope of a run.

    Args:
        name: the user's own id of the task, such as a ticket or thread id. The run id
            is a keyed hash of it, the same in every process with the same install key
            (see `tenuto.install_key`), so that a resumed task keeps its sessions.
            None, or a name that is empty, starts a new run with a random id.
    """
    session = root_session(name)
    return Run(session, ends=not session.is_resumable)


def root_session(name: str | int | None) -> Session:
    """Return the session of a run outside all its agents; `name` as `run` takes it."""
    has_name = name is not None and str(name).strip() != ""
    run_id = derive_run_id(str(name), install_key()) if has_name else secrets.token_hex(ID_BYTES)
    session_id = derive_session_id(run_id, "", "", "0")
    state = process.SESSIONS.get(session_id)
    return Session(run_id, session_id, state, is_resumable=has_name)


class _Turn(Scope):
    """Says something of the turns of whatever session is in scope where it is entered."""

    def __init__(self, hints: Hints) -> None:
        # Not the base's: there is no session before it is entered.
        self._hints = hints
        self._ends = False
        self._entries = {}

    def __enter__(self) -> Self:
        call = current_call()
        if call is not None:
            session, outer = call
            self._open(session, self._hints.over(outer))
        return self


def turn(
    *,
    phase: Phase | None = None,
    expect: Expectation | None = None,
    ttl: int | None = None,
    prio: int | None = None,
    at: Sequence[int] = (),
) -> Scope:
    """Return a scope that says of the turns in it what cannot be seen, or is seen wrongly.

    Args:
        phase: what opened the turn: `start`, `user`, `tool`, `child`, `handoff`,
            `compact` or `resume`.
        expect: what ends the wait after it: `tenuto.tool("pytest", seconds=40)`.
        ttl: how many seconds its cache is worth keeping.
        prio: -8 to 8, higher is more urgent.
        at: at most 4 message indices, from the end where negative, whose ends are worth
            a checkpoint.

    Raises:
        ConfigError: a value is outside its limits; the message names them.
    """
    if not isinstance(at, Sequence) or isinstance(at, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"at is up to 4 message indices, such as (0, -2), got {at!r}")
    return _Turn(checked(Hints(phase, expect, ttl, prio, tuple(at))))
