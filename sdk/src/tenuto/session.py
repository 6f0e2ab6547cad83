"""One session as a value, and what a program says of its turns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

from tenuto import _wire, process
from tenuto.errors import ConfigError
from tenuto.expect import Expectation
from tenuto.identity import derive_session_id
from tenuto.raw_headers import Raw
from tenuto.sessions import Origin, SessionState
from tenuto.turn import Kind, Phase

Fork = Literal["fresh", "inherit"]


_UNSAID = (None, ())


class Hints(NamedTuple):
    """What a program says of turns; None where it says nothing. Units as in `_wire.Turn`."""

    phase: Phase | None = None
    expect: Expectation | None = None
    ttl: int | None = None
    prio: int | None = None
    at: tuple[int, ...] = ()

    def over(self, outer: Hints) -> Hints:
        """Return these hints, and an outer scope's where these say nothing."""
        said = {name: value for name, value in self._asdict().items() if value not in _UNSAID}
        return outer._replace(**said)


NO_HINTS = Hints()


@dataclass(frozen=True, slots=True)
class Session:
    """One linear KV history: the root of a run, or one agent instance.

    `agent` is a label, a path when nested (`planner/search`), never a key by itself.
    `is_resumable` says that another process may have begun it: its run has a name.
    """

    run_id: str
    session_id: str
    state: SessionState
    agent: str = ""
    parent: Session | None = None
    fork: Fork = "fresh"
    kind: Kind | None = None
    is_resumable: bool = False
    # What dialects make of the ids: (dialect's name, headers).
    encoded: list[tuple[str, tuple[Raw, ...]]] = field(
        default_factory=list[tuple[str, "tuple[Raw, ...]"]], repr=False, compare=False
    )

    @property
    def markers(self) -> _wire.Markers:
        """The ids as the protocol has them."""
        parent = self.parent.session_id if self.parent is not None else None
        return _wire.Markers(self.session_id, parent, self.run_id)

    @property
    def root_id(self) -> str:
        """The id of the session at the root of the run."""
        session = self
        while session.parent is not None:
            session = session.parent
        return session.session_id

    def token(self, origin: Origin, name: str = "") -> str | None:
        """Return what `origin` gave: the session, or an inheriting child's parent."""
        own = self.state.token(origin, name)
        if own is None and self.fork == "inherit" and self.parent is not None:
            return self.parent.state.token(origin, name)
        return own


# Of a run that makes more agents the first are not told of when it ends.
_MOST_AGENTS = 4096
_AGENTS: WeakKeyDictionary[SessionState, dict[str, None]] = WeakKeyDictionary()


def agents_of(root: Session) -> list[str]:
    """Return the ids of the sessions that were made in a run, as far as they are kept."""
    return list(_AGENTS.get(root.state, ()))


def child_of(
    parent: Session,
    name: str,
    instance: str = "0",
    *,
    fork: Fork = "fresh",
    kind: Kind | None = None,
) -> Session:
    """Return the session of an agent below another, or below a run's root."""
    session_id = derive_session_id(parent.run_id, parent.session_id, name, instance)
    root = parent
    while root.parent is not None:
        root = root.parent
    agents = _AGENTS.setdefault(root.state, {})
    agents[session_id] = None
    if len(agents) > _MOST_AGENTS:
        agents.pop(next(iter(agents)), None)
    return Session(
        parent.run_id,
        session_id,
        process.SESSIONS.get(session_id),
        f"{parent.agent}/{name}" if parent.agent else name,
        parent,
        fork,
        kind or ("subagent" if parent.agent else None),
        parent.is_resumable,
    )


def checked(hints: Hints) -> Hints:
    """Return `hints` when the protocol can carry each of them.

    Raises:
        ConfigError: one is outside its limits; the message names it and them.
    """
    said = _wire.Turn(phase=hints.phase, ttl=hints.ttl, prio=hints.prio, at=hints.at)
    dropped: list[str] = []
    for name in ("phase", "ttl", "prio", "at"):
        value = getattr(said, name)
        if value not in _UNSAID and not _is_sendable(name, value):
            dropped.append(f"{name}={value!r}")
    if dropped:
        limits = f"phase in {sorted(_wire.PHASES)}, ttl >= 0 s, prio -8 to 8, at most 4 indices"
        raise ConfigError(f"{', '.join(dropped)} cannot be sent; the limits are {limits}")
    if hints.expect is not None and not isinstance(hints.expect, Expectation):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(
            f"expect is made by tenuto.tool(...) or tenuto.Expectation(...), got {hints.expect!r}"
        )
    return NO_HINTS if hints == NO_HINTS else hints


def _is_sendable(name: str, value: Any) -> bool:
    try:
        return _wire.encode_turn(_wire.Turn(**{name: value})) != ""
    except TypeError:
        return False
