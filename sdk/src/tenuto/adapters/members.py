"""Sessions for the agents of a framework that says which of its agents makes a call."""

from __future__ import annotations

import contextlib
import os
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


class _Numbers:
    """Numbers agents of one name in the order in which they come; those that are gone go."""

    def __init__(self) -> None:
        self._count = 0
        # Agents may be unhashable.
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}

    def of(self, agent: object) -> int:
        key = id(agent)
        known = self._known.get(key)
        if known is not None and known[0]() is agent:
            return known[1]
        number, self._count = self._count, self._count + 1
        self._known[key] = weakref.ref(agent, lambda gone: self._forget(key, gone)), number
        return number

    def _forget(self, key: int, gone: weakref.ref[Any]) -> None:
        known = self._known.get(key)
        if known is not None and known[0] is gone:
            del self._known[key]


class _Seen:
    """The lock of what is known of agents."""

    # Taken again by the garbage collector's work in the midst of ours.
    lock = threading.RLock()

    @classmethod
    def renew(cls) -> None:
        cls.lock = threading.RLock()


os.register_at_fork(after_in_child=_Seen.renew)
_NUMBERS: weakref.WeakKeyDictionary[SessionState, dict[str, _Numbers]] = weakref.WeakKeyDictionary()


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
    with _Seen.lock:
        names = _NUMBERS.setdefault(state, {})
        if name not in names:
            names[name] = _Numbers()
        return str(names[name].of(agent))
