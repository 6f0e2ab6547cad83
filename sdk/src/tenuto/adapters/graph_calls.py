"""Which session a call in LangGraph's nodes belongs to, by what runnables begin and end."""

from __future__ import annotations

import os
import threading
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from tenuto.context import said_by
from tenuto.endings import end_session
from tenuto.entries import Entry, current, number, outlives_a_scope_since
from tenuto.scopes import root_session
from tenuto.session import NO_HINTS, Hints, Session, child_of

# "node:task|node:task", in LangGraph's words a checkpoint namespace.
_BETWEEN, _TASK = "|", ":"
_PUSHED = "__pregel_push"
# Of a call that takes more steps those of its first are derived again.
_MOST_SESSIONS = 4096


class _Shared:
    """The lock of all calls: sessions are told apart over them."""

    lock = threading.Lock()

    @classmethod
    def renew(cls) -> None:
        cls.lock = threading.Lock()


os.register_at_fork(after_in_child=_Shared.renew)


class GraphCall:
    """One call from outside of LangChain, with all that it calls."""

    def __init__(self) -> None:
        # Of those that are called without a scope, by thread.
        self._roots: dict[str | None, Session] = {}
        self._sessions: dict[tuple[str, str], Session] = {}
        self._slots: dict[tuple[str, str], int] = {}

    def ended(self) -> None:
        """Take in that the call is over: nobody can go on in a run that has no name."""
        with _Shared.lock:
            root, sessions = self._roots.get(None), [*self._sessions.values()]
            for key, slot in self._slots.items():
                if _ALIVE.get((*key, slot)) is self:
                    del _ALIVE[*key, slot]
            self._slots.clear()
        if root is not None:
            for session in (root, *sessions):
                if session.run_id == root.run_id:
                    end_session(session.session_id, session.state)

    def own_run(self, thread: str | None) -> Session:
        """Return the run of a call without a scope."""
        with _Shared.lock:
            if thread not in self._roots:
                self._roots[thread] = root_session(thread)
            return self._roots[thread]

    def below(self, session: Session, outer: str, running: Running, thread: str) -> Session:
        """Return the session of nodes below one, whose nodes `outer` are left out."""
        nodes = running.nodes
        with _Shared.lock:
            known = self._sessions.get((session.session_id, nodes))
            if known is not None:
                return known
            made = self._made(session, outer, running, thread)
            if len(self._sessions) >= _MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[session.session_id, nodes] = made
            return made

    def _made(self, session: Session, outer: str, running: Running, thread: str) -> Session:
        nodes, at = running.nodes, len(outer)
        slot = 0 if outer else self._slot(session.session_id, thread)
        counted = str(slot) if slot else ""
        for part in nodes[at:].strip(_BETWEEN).split(_BETWEEN):
            at = nodes.index(part, at) + len(part)
            if part.isdigit():
                # Of a graph that a node calls again.
                counted = part
                continue
            name, _, task = part.partition(_TASK)
            instance = task if nodes[:at] in running.pushed else "0"
            if instance == "0" and (thread or counted):
                instance = f"{thread}{_BETWEEN}{counted}"
            session = child_of(session, name, instance)
            thread = counted = ""
        return session

    def _slot(self, session_id: str, thread: str) -> int:
        """Return what tells the call from others that run beside it in the same scope."""
        key = (session_id, thread)
        if key not in self._slots:
            slot = 0
            while _ALIVE.setdefault((*key, slot), self) is not self:
                slot += 1
            self._slots[key] = slot
        return self._slots[key]


_ALIVE: WeakValueDictionary[tuple[str, str, int], GraphCall] = WeakValueDictionary()


class Running(NamedTuple):
    """A runnable that is under way.

    Attributes:
        call: that it belongs to.
        nodes: the namespace of the node that it is, or that it runs in; "" outside of all.
        pushed: namespaces of tasks that run side by side with others of the same node.
        entry: the scope that its graph was called in.
        outer: the nodes that this scope was opened in.
        number: entries above it were made since it began.
        is_first: no other has called it.
    """

    call: GraphCall
    nodes: str
    pushed: frozenset[str]
    entry: Entry | None
    outer: str
    number: int
    is_first: bool

    @classmethod
    def begun(cls, above: Running | None, metadata: Any) -> Running:
        """Return a runnable that begins here."""
        said: dict[str, Any] = metadata or {}
        nodes: str = said.get("langgraph_checkpoint_ns") or (above.nodes if above else "")
        if above is None:
            return cls(GraphCall(), nodes, frozenset(), current(), nodes, number(), is_first=True)
        # A node is in the scope of its graph: who pulls a stream may have opened others meanwhile.
        is_node = nodes != above.nodes
        entry, outer = (above.entry, above.outer) if is_node else above.scope(current())
        is_pushed = is_node and (said.get("langgraph_path") or ("",))[0] == _PUSHED
        pushed = above.pushed | {nodes} if is_pushed else above.pushed
        return cls(above.call, nodes, pushed, entry, outer, number(), is_first=False)

    def scope(self, entry: Entry | None) -> tuple[Entry | None, str]:
        """Return the scope of what is called here, of which `entry` is seen, and its nodes."""
        if entry is not None and entry.number > self.number:
            return entry, self.nodes
        return self.entry, self.outer

    def session(self, seen: Entry | None, thread: str | None) -> tuple[Session | None, Hints]:
        """Return the session of a call here.

        Args:
            seen: the scope that it seems to be made in.
            thread: id of the thread, None for a graph that keeps none.
        """
        if outlives_a_scope_since(self.number):
            return None, NO_HINTS
        entry, outer = self.scope(seen)
        if entry is not None and not entry.is_open:
            return None, NO_HINTS
        said = said_by(entry)
        if said is None and entry is not None:
            return None, NO_HINTS
        if said is None:
            return self.call.below(self.call.own_run(thread), "", self, ""), NO_HINTS
        if outer == self.nodes:
            return said
        # A graph with a thread of its own begins its namespace anew.
        is_around = f"{self.nodes}{_BETWEEN}".startswith(f"{outer}{_BETWEEN}")
        return self.call.below(said[0], outer if is_around else "", self, thread or ""), NO_HINTS
