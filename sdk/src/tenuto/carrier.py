"""Carrying a session into another process, in a dictionary or an environment variable.

The value is a query string, visible ASCII throughout, of at most 4 KB:

| field | |
|---|---|
| `run`, `session`, `parent` | ids; no `parent` at the root of a run |
| `agent`, `fork`, `kind` | as in `tenuto.session.Session`, where they say something |
| `turn` | index of the session's next turn |
| `home` | `<origin> <token> [<answer header>]` for each token, the newest first |
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Self, cast
from urllib.parse import parse_qsl, urlencode

from tenuto import _wire, process
from tenuto.context import current_session, inherit_session
from tenuto.scopes import Agent, Run
from tenuto.session import NO_HINTS, Session
from tenuto.sessions import SessionState
from tenuto.turn import Kind

KEY = "tenuto-context"
VARIABLE = "TENUTO_CONTEXT"
MAX_BYTES = 4096
_MAX_FIELDS = 32
_MAX_LABEL = 128
_TURN = re.compile(r"[0-9]{1,9}")
_HOME = re.compile(r"(https?)://([!-~]{1,255}) ([!-~]{1,512})(?: ([A-Za-z0-9-]{1,64}))?")


def inject(carrier: dict[str, str] | None = None) -> dict[str, str]:
    """Put the session that this call is made in into a dictionary of strings.

    Args:
        carrier: what to add to, such as a task's headers; changed in place. Outside every
            run it stays as it is.

    Returns:
        The same dictionary, or another one.
    """
    if carrier is None:
        carrier = {}
    if (text := _written()) is not None:
        carrier[KEY] = text
    return carrier


def extract(carrier: Mapping[str, Any] | None) -> Run:
    """Return the scope of the session that `inject` has put into a dictionary.

    Args:
        carrier: what arrived; the case of its names does not matter.

    Returns:
        The scope, sync and async: the same ids, the turns and the tokens going on. Its
        `agent` makes children of the session. Calls in it are unmarked when the carrier
        holds no session or a malformed one.
    """
    session = None
    try:
        session = _read(_found(carrier))
    except Exception:
        process.pass_over("read the carrier of")
    return Run(session) if session is not None else _UnmarkedRun()


def environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for a child process that goes on in this session.

    The child's calls outside every scope of its own belong to it; those of the child's own
    children do not.

    Args:
        env: what to add to; None is this process's own.
    """
    given = dict(os.environ if env is None else env)
    given.pop(VARIABLE, None)
    if (text := _written()) is not None:
        given[VARIABLE] = text
    return given


def inherit_environment(environ: MutableMapping[str, str]) -> None:
    """Have this process go on in the session that its parent has handed to it.

    The variable is taken away: it speaks to one process, and whatever that one starts
    would otherwise show the session for as long as it lives.
    """
    text = environ.pop(VARIABLE, "")
    if not text:
        return
    session = _read(text)
    if session is None:
        process.warn_once("context", f"{VARIABLE} is malformed: calls are marked without it")
    inherit_session(session)


def _written() -> str | None:
    try:
        session = current_session()
        return _text(session) if session is not None else None
    except Exception:
        process.pass_over("write the carrier of")
        return None


def _text(session: Session) -> str:
    said = session.markers
    fields = [("run", said.run), ("session", said.session), ("parent", said.parent)]
    fields += [("agent", session.agent[:_MAX_LABEL]), ("kind", session.kind)]
    fields += [("fork", "inherit" if session.fork == "inherit" else None)]
    fields += [("turn", str(session.state.next_turn))]
    text = _query([(name, value) for name, value in fields if value])
    for home in _homes(session):
        longer = f"{text}&{_query([('home', home)])}"
        if len(longer) <= MAX_BYTES:
            text = longer
    return text


def _query(fields: list[tuple[str, str]]) -> str:
    return urlencode(fields, errors="replace")


def _homes(session: Session) -> Iterator[str]:
    states = [session.state]
    if session.fork == "inherit" and session.parent is not None:
        states.append(session.parent.state)
    for state in states:
        for (scheme, place), header, token in reversed(state.tokens()):
            yield f"{scheme}://{place.decode('ascii')} {token} {header}".rstrip()


def _found(carrier: Any) -> str:
    if not isinstance(carrier, Mapping):
        return ""
    items = cast("Mapping[Any, Any]", carrier).items()
    value = next((held for name, held in items if _is_key(name)), "")
    if isinstance(value, bytes):
        return value.decode("ascii", "replace")
    return value if isinstance(value, str) else ""


def _is_key(name: object) -> bool:
    if isinstance(name, bytes):
        return name.lower() == KEY.encode()
    return isinstance(name, str) and name.lower() == KEY


def _read(text: str) -> Session | None:
    if not text or len(text) > MAX_BYTES:
        return None
    try:
        fields = parse_qsl(text, max_num_fields=_MAX_FIELDS)
    except ValueError:
        return None
    said = dict(reversed(fields))
    run_id, session_id, parent_id = (said.get(name, "") for name in ("run", "session", "parent"))
    ids = [run_id, session_id, *([parent_id] if parent_id else [])]
    turn = said.get("turn", "0")
    if not all(map(_wire.is_id, ids)) or _TURN.fullmatch(turn) is None:
        return None
    agent = said.get("agent", "")
    agent = agent[:_MAX_LABEL] if agent.isprintable() else ""
    parent = None
    if parent_id:
        state = process.SESSIONS.get(parent_id)
        parent = Session(run_id, parent_id, state, agent.rpartition("/")[0])
    session = Session(
        run_id,
        session_id,
        process.SESSIONS.get(session_id),
        agent,
        parent,
        "inherit" if said.get("fork") == "inherit" else "fresh",
        cast("Kind | None", said["kind"] if said.get("kind") in _wire.CLASSES else None),
        is_resumable=True,
    )
    homes = [value for name, value in reversed(fields) if name == "home"]
    _go_on(session.state, int(turn), homes)
    return session


def _go_on(state: SessionState, turn: int, homes: list[str]) -> None:
    # An older carrier, such as one that is read again, knows nothing better.
    is_newer = turn >= state.next_turn
    state.resume_at(turn)
    for home in map(_HOME.fullmatch, homes):
        if home is None:
            continue
        origin, header = (home[1], home[2].encode("ascii")), home[4] or ""
        if is_newer or state.token(origin, header) is None:
            state.keep_token(origin, home[3], header)


class _Unmarked:
    """Calls in such a scope are not marked, whatever is around it."""

    def __enter__(self) -> Self:
        self._open(None, NO_HINTS)  # type: ignore[attr-defined]
        return self


class _UnmarkedAgent(_Unmarked, Agent):
    pass


class _UnmarkedRun(_Unmarked, Run):
    def __init__(self) -> None:
        super().__init__(Session("", "", SessionState()))

    def agent(self, name: str, **_: Any) -> Agent:
        return _UnmarkedAgent(self._session)
