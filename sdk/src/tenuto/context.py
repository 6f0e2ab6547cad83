"""Which session a call belongs to: one ContextVar of a chain of entries.

Scopes hold no token of the ContextVar. Entering one puts an entry on a chain; leaving it
closes that entry for every copy of the context at once, and an entry that is closed is
passed over. So scopes that are left out of order, in another task or by the garbage
collector neither raise nor leave a session behind, and what keeps a copy of a context
for longer (a task that outlives its scope, a connection kept alive) is in no session
rather than in a stranger's.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from contextvars import Context
from functools import partial
from types import TracebackType
from typing import Self

from tenuto import observer
from tenuto.endings import end_session
from tenuto.entries import Entry, bodies_at, captured, current, enter, forget_closed, newest
from tenuto.errors import ConfigError
from tenuto.session import NO_HINTS, Hints, Session


class _Inherited:
    """The session of the process itself, when its parent has given it one."""

    session: Session | None = None


def inherit_session(session: Session | None) -> None:
    """Have calls outside every scope of this process, not of its forks, belong to `session`."""
    _Inherited.session = session


os.register_at_fork(after_in_child=partial(inherit_session, None))


Refine = Callable[[Entry | None], tuple[Session | None, Hints] | None]
# Adapters of frameworks: each is given the scope that a call is made in, and returns the session
# that its framework makes of that; None where it knows no better.
REFINES: list[Refine] = []


def current_session() -> Session | None:
    """Return the session that a call made here belongs to, None outside every run."""
    call = current_call()
    return call[0] if call is not None else None


def current_call() -> tuple[Session, Hints] | None:
    """Return the session that a call made here belongs to, and what is said of its turn."""
    entry = current()
    for refine in REFINES:
        if (call := refine(entry)) is not None:
            session, hints = call
            return (session, hints) if session is not None else None
    return said_by(entry)


def said_by(entry: Entry | None) -> tuple[Session, Hints] | None:
    """Return what a scope says of the calls in it, whatever a framework makes of that."""
    if entry is not None:
        return (entry.session, entry.hints) if entry.session is not None else None
    inherited = _Inherited.session
    return (inherited, NO_HINTS) if inherited is not None else None


def held_open() -> tuple[Context, Callable[[], None]]:
    """Return a copy of this context in the scope that the caller is in, entered once more.

    Returns:
        The context, and what leaves that entering for good.
    """
    context = captured()
    chain: list[Entry] = []
    entry = current()
    while entry is not None:
        chain.append(entry)
        entry = entry.previous
    # All of them: a run that ends with its scope must not end below its agent's generator.
    leaving: list[Callable[[], None]] = [
        partial(entry.owner.leave, context.run(entry.owner.enter_again, entry))
        for entry in reversed(chain)
        if entry.is_open and isinstance(entry.owner, Scope)
    ]
    return context, partial(_call_all, leaving)


def _call_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()


class Scope:
    """A run or an agent as a context manager, sync and async, re-enterable."""

    def __init__(self, session: Session, hints: Hints = NO_HINTS, *, ends: bool = False) -> None:
        if not isinstance(session, Session):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("scopes are made by tenuto.run(...) and run.agent(...)")
        self._session = session
        self._hints = hints
        self._ends = ends
        # In the order of their opening.
        self._entries: dict[Entry, None] = {}

    @property
    def run_id(self) -> str:
        """The run's id as it travels: 32 hex characters."""
        return self._session.run_id

    @property
    def session_id(self) -> str:
        """The session's id as it travels: 32 hex characters."""
        return self._session.session_id

    def end(self) -> None:
        """Say that the session has finished, so that servers need not keep its cache.

        They are told in the background and with later requests. It takes effect once, and
        a session that goes on all the same is served as always.
        """
        end_session(self._session.session_id, self._session.state)

    def __enter__(self) -> Self:
        self._open(self._session, self._hints)
        return self

    def _open(self, session: Session | None, hints: Hints) -> None:
        body = next(bodies_at(inspect.currentframe()), None)
        entry = self._show(Entry(self, session, hints, newest(), body))
        if observer.observers:
            observer.entered(entry)

    def _show(self, entry: Entry) -> Entry:
        self._entries[entry] = None
        if entry.session is not None:
            entry.session.state.enter()
        enter(entry)
        return entry

    def enter_again(self, entry: Entry) -> Entry:
        """Enter as `entry` did, to stay whoever runs in this context."""
        again = Entry(self, entry.session, entry.hints, newest())
        again.number = entry.number
        return self._show(again)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        entry = self._entering()
        if entry is not None:
            self.leave(entry, error)
        forget_closed()

    def leave(self, entry: Entry, error: BaseException | None = None) -> None:
        """Close one entering; the scope ends with its last."""
        # A forked child leaves scopes that its parent is still in.
        was_open = entry.is_open
        entry.close()
        self._entries.pop(entry, None)
        if not self._entries:
            # One that has been larger stays so.
            self._entries = {}
        if entry.session is None or not was_open:
            return
        if observer.observers:
            observer.left(entry, error)
        is_last = entry.session.state.leave()
        if self._ends and is_last:
            self.end()

    def _entering(self) -> Entry | None:
        """Return which entering the caller leaves."""
        body = next(bodies_at(inspect.currentframe()), None)
        if body is not None:
            for entry in reversed(tuple(self._entries)):
                if entry.body is body:
                    return entry
        entry = newest()
        while entry is not None and not (entry.is_open and entry.owner is self):
            entry = entry.previous
        if entry is None and len(self._entries) == 1:
            # Left in a context that never saw it entered, as when a generator is
            # collected. Of several enterings none can be told to be the one meant.
            entry = next(iter(self._entries), None)
        return entry

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)
