"""Sessions for the agents of a framework that says which of its agents makes a call."""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Any

from tenuto import process
from tenuto.context import Scope, current_session
from tenuto.entries import current
from tenuto.scopes import Agent
from tenuto.session import Session, child_of
from tenuto.sessions import SessionState

Scoped = Scope | contextlib.nullcontext[None]

# Agents of one name below one session are told apart by the order in which they come.
_SEEN: weakref.WeakKeyDictionary[SessionState, dict[str, list[weakref.ref[Any]]]] = (
    weakref.WeakKeyDictionary()
)
_LOCK = threading.Lock()


def scope_of(name: str, agent: object) -> Scoped:
    """Return the scope of a framework's agent, below the session that this is called in.

    Args:
        name: the agent's own, the same in every process.
        agent: the framework's object: one object is one session, another of the same name
            below the same session is another instance.

    Returns:
        A scope to be entered; outside every run, one that does nothing.
    """
    try:
        entry, session = current(), current_session()
        # An agent's methods call each other.
        owner = entry.owner if entry is not None else None
        is_within = isinstance(owner, _Member) and owner.of() is agent
        if session is not None and not is_within:
            return _Member(child_of(session, name, _instance(session.state, name, agent)), agent)
    except Exception:
        process.pass_over("find the agent of")
    return contextlib.nullcontext()


class _Member(Agent):
    """The scope of a framework's agent, which knows whose it is."""

    def __init__(self, session: Session, agent: object) -> None:
        super().__init__(session)
        self.of: weakref.ref[Any] = weakref.ref(agent)


def _instance(state: SessionState, name: str, agent: object) -> str:
    with _LOCK:
        seen = _SEEN.setdefault(state, {}).setdefault(name, [])
        for number, known in enumerate(seen):
            if known() is agent:
                return str(number)
        seen.append(weakref.ref(agent))
        return str(len(seen) - 1)
