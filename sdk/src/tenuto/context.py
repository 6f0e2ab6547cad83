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
import secrets
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

from tenuto import _wire, raw_headers
from tenuto.dialects import Dialect
from tenuto.errors import ConfigError
from tenuto.identity import ID_BYTES, derive_run_id, derive_session_id
from tenuto.install_key import install_key
from tenuto.raw_headers import Raw
from tenuto.sessions import Origin, SessionState, SessionStore

Fork = Literal["fresh", "inherit"]
_FORKS = ("fresh", "inherit")

# One for the process: a run entered again by its name goes on where it was.
_STORE = SessionStore()


@dataclass(frozen=True, slots=True)
class Session:
    """One linear KV history: the root of a run, or one agent instance.

    `agent` is a label, a path when nested (`planner/search`), never a key by itself.
    """

    run_id: str
    session_id: str
    state: SessionState
    agent: str = ""
    parent: Session | None = None
    fork: Fork = "fresh"
    _headers: dict[str, tuple[Raw, ...]] = field(
        default_factory=dict[str, "tuple[Raw, ...]"], repr=False, compare=False
    )

    def headers(self, dialect: Dialect) -> list[Raw]:
        """Return the headers that are the same on every call of the session."""
        known = self._headers.get(dialect.name)
        if known is None:
            known = self._headers[dialect.name] = self._encoded(dialect)
        return list(known)

    def token(self, origin: Origin) -> str | None:
        """Return the affinity token for `origin`: its own, or an inheriting child's parent's."""
        own = self.state.token(origin)
        if own is None and self.fork == "inherit" and self.parent is not None:
            return self.parent.state.token(origin)
        return own

    def _encoded(self, dialect: Dialect) -> tuple[Raw, ...]:
        parent = self.parent.session_id if self.parent is not None else None
        said = _wire.encode(_wire.Markers(self.session_id, parent, self.run_id))
        raw = [(*raw_headers.name(name), value.encode()) for name, value in said.items()]
        return tuple(item for item in raw if item[0] in dialect.headers)


class _Entry:
    """One entering of a scope; shared by all copies of the context it was made in."""

    __slots__ = ("is_open", "owner", "previous", "session")

    def __init__(self, owner: Scope, session: Session, previous: _Entry | None) -> None:
        self.owner = owner
        self.session = session
        self.previous = previous
        self.is_open = True


_CURRENT: ContextVar[_Entry | None] = ContextVar("tenuto", default=None)


def _current() -> _Entry | None:
    entry = _CURRENT.get()
    while entry is not None and not entry.is_open:
        entry = entry.previous
    return entry


def current_session() -> Session | None:
    """Return the session that a call made here belongs to, None outside every run."""
    entry = _current()
    return entry.session if entry is not None else None


class Scope:
    """A run or an agent as a context manager, sync and async, re-enterable."""

    def __init__(self, session: Session) -> None:
        if not isinstance(session, Session):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("scopes are made by tenuto.run(...) and run.agent(...)")
        self._session = session
        self._entries: list[_Entry] = []

    @property
    def run_id(self) -> str:
        """The run's id as it travels: 32 hex characters."""
        return self._session.run_id

    @property
    def session_id(self) -> str:
        """The session's id as it travels: 32 hex characters."""
        return self._session.session_id

    def __enter__(self) -> Self:
        entry = _Entry(self, self._session, _current())
        self._entries.append(entry)
        _CURRENT.set(entry)
        return self

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


class Agent(Scope):
    """One agent of a run: planner, tool caller and verifier are three sessions."""

    @property
    def agent(self) -> str:
        """The role's name, a path when nested (`planner/search`)."""
        return self._session.agent


class Run(Scope):
    """One top-level task of an agent program, shared by all its agents.

    Calls made in the run outside every agent belong to its root session.
    """

    def agent(self, name: str, *, instance: str | int = 0, fork: Fork = "fresh") -> Agent:
        """Return the scope of an agent: entered again, it is the same session going on.

        Args:
            name: the role, such as "planner".
            instance: tells parallel instances of one agent apart, such as a tool call id.
            fork: "inherit" when the agent's first prompt starts with its parent's
                context, so that the server may start it at the parent's home.

        Returns:
            A scope whose parent is the agent that encloses this call in the same run,
            or else the run's root session. It is enough by itself: the run's own scope
            need not be open.

        Raises:
            ConfigError: `fork` is neither "fresh" nor "inherit".
        """
        if fork not in _FORKS:
            raise ConfigError(f'fork is "fresh" or "inherit", got {fork!r}')
        enclosing = current_session()
        if enclosing is None or enclosing.run_id != self.run_id:
            enclosing = self._session
        name = str(name)
        return Agent(
            _session(
                self.run_id,
                derive_session_id(self.run_id, enclosing.session_id, name, str(instance)),
                agent=f"{enclosing.agent}/{name}" if enclosing.agent else name,
                parent=enclosing,
                fork=fork,
            )
        )


def run(name: str | int | None = None) -> Run:
    """Return the scope of a run.

    Args:
        name: the user's own id of the task, such as a ticket or thread id. The run id
            is a keyed hash of it, the same in every process with the same install key
            (see `tenuto.install_key`), so that a resumed task keeps its sessions.
            None, or a name that is empty, starts a new run with a random id.
    """
    if name is None or not str(name).strip():
        run_id = secrets.token_hex(ID_BYTES)
    else:
        run_id = derive_run_id(str(name), install_key())
    return Run(_session(run_id, derive_session_id(run_id, "", "", "0")))


def _session(
    run_id: str,
    session_id: str,
    *,
    agent: str = "",
    parent: Session | None = None,
    fork: Fork = "fresh",
) -> Session:
    return Session(run_id, session_id, _STORE.get(session_id), agent, parent, fork)
