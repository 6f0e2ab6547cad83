"""Which session a call belongs to: one ContextVar of a chain of entries.

Scopes hold no token of the ContextVar. Entering one puts an entry on a chain; leaving it
closes that entry for every copy of the context at once, and an entry that is closed is
passed over. So scopes that are left out of order, in another task or by the garbage
collector neither raise nor leave a session behind, and what keeps a copy of a context
for longer (a task that outlives its scope, a connection kept alive) is in no session
rather than in a stranger's.
"""

from __future__ import annotations

import contextlib
import os
from contextvars import ContextVar
from types import TracebackType
from typing import Self

from tenuto.endings import end_session
from tenuto.errors import ConfigError
from tenuto.session import NO_HINTS, Hints, Session


class _Entry:
    """One entering of a scope; shared by all copies of the context it was made in."""

    __slots__ = ("hints", "is_open", "owner", "previous", "process", "session")

    def __init__(
        self, owner: Scope, session: Session, hints: Hints, previous: _Entry | None
    ) -> None:
        self.owner = owner
        self.session = session
        self.hints = hints
        self.previous = previous
        self.is_open = True
        self.process = _Process.number


class _Process:
    """Tells a forked child's entries from those it was forked with, which are its parent's.

    A pool's worker lives on with the context of the moment it was forked in.
    """

    number = 0

    @classmethod
    def forked(cls) -> None:
        cls.number += 1


os.register_at_fork(after_in_child=_Process.forked)
_CURRENT: ContextVar[_Entry | None] = ContextVar("tenuto", default=None)


def _current() -> _Entry | None:
    entry = _CURRENT.get()
    while entry is not None and not (entry.is_open and entry.process == _Process.number):
        entry = entry.previous
    return entry


class _Inherited:
    """The session of the process itself, when its parent has given it one."""

    session: Session | None = None


def inherit_session(session: Session | None) -> None:
    """Have calls outside every scope of this process belong to `session`."""
    _Inherited.session = session


def current_session() -> Session | None:
    """Return the session that a call made here belongs to, None outside every run."""
    entry = _current()
    return entry.session if entry is not None else _Inherited.session


def current_call() -> tuple[Session, Hints] | None:
    """Return the session that a call made here belongs to, and what is said of its turn."""
    entry = _current()
    if entry is not None:
        return entry.session, entry.hints
    inherited = _Inherited.session
    return (inherited, NO_HINTS) if inherited is not None else None


class Scope:
    """A run or an agent as a context manager, sync and async, re-enterable."""

    def __init__(self, session: Session, hints: Hints = NO_HINTS, *, ends: bool = False) -> None:
        if not isinstance(session, Session):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("scopes are made by tenuto.run(...) and run.agent(...)")
        self._session = session
        self._hints = hints
        self._ends = ends
        self._entries: list[_Entry] = []

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

    def _open(self, session: Session, hints: Hints) -> None:
        entry = _Entry(self, session, hints, _current())
        self._entries.append(entry)
        _CURRENT.set(entry)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        entry = _current()
        while entry is not None and not (entry.is_open and entry.owner is self):
            entry = entry.previous
        if entry is None and len(self._entries) == 1:
            # Left in a context that never saw it entered, as when a generator is
            # collected. Of several enterings none can be told to be the one meant.
            entry = self._entries[0]
        if entry is not None:
            entry.is_open = False
            with contextlib.suppress(ValueError):
                self._entries.remove(entry)
            # A forked child leaves scopes that its parent is still in.
            if self._ends and not self._entries and entry.process == _Process.number:
                self.end()
        _CURRENT.set(_current())

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)
