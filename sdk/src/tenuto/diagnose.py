"""Looking at what tenuto does here: which session, which headers, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tenuto import _wire, dialects, process
from tenuto.context import current_session
from tenuto.errors import ConfigError
from tenuto.session import Session
from tenuto.sessions import Origin


@dataclass(frozen=True, slots=True)
class Current:
    """The session that a call made here belongs to.

    `turn` is the index that its next new prompt gets; `agent` is "" in a run outside every
    agent; `parent_session_id` is None at the root of a run.
    """

    run_id: str
    session_id: str
    parent_session_id: str | None
    agent: str
    turn: int


def current() -> Current | None:
    """Return the session that a call made here belongs to, None outside every run."""
    session = current_session()
    if session is None:
        return None
    _, parent, _, _, _ = session.markers
    next_turn = session.state.next_turn
    return Current(session.run_id, session.session_id, parent, session.agent, next_turn)


def headers(base_url: Any = None, *, dialect: dialects.Choice | None = None) -> dict[str, str]:
    """Return the headers for a request that no wrapped client makes.

    For programs and libraries with an HTTP client of their own, such as
    `litellm.responses(..., extra_headers=tenuto.headers(url))`. No turn is opened, since
    there is no prompt to tell turns apart by.

    Args:
        base_url: where the request goes: it decides the dialect, and whose token is sent.
        dialect: as `wrap` takes it.

    Returns:
        An empty dictionary outside every run.

    Raises:
        ConfigError: the dialect is unknown.
    """
    session = current_session()
    if session is None or process.settings().disabled:
        return {}
    origin, host = _place(base_url)
    chosen, _ = _chosen(dialect, origin, host, session)
    raw = [
        *dialects.fixed(chosen, session.markers),
        *dialects.echoes(chosen, lambda name: session.token(origin, name)),
    ]
    return {name.decode(): value.decode() for name, _, value in raw}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What would be sent from here, where each part comes from, and what was passed over.

    Attributes:
        session: the session in scope, None outside every run.
        dialect: the name of the dialect.
        chosen_by: what decided it: `argument`, `environment`, `answer`, `host` or `default`.
        headers: header -> (value, where it comes from).
        body: body field -> what it carries.
        settings: variable -> value in effect.
        passed_over: what was counted instead of failing a request, by fixed words.
        news: what servers were told in the background: sent, failed, dropped.
        problems: sentences on what keeps requests from being marked, empty when all is well.
    """

    session: Current | None
    dialect: str
    chosen_by: str
    headers: dict[str, tuple[str, str]]
    body: dict[str, str]
    settings: dict[str, Any]
    passed_over: dict[str, int]
    news: dict[str, int]
    problems: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        """Return it as lines for a terminal."""
        lines = [f"problem   {problem}" for problem in self.problems]
        lines.append(f"session   {self.session or 'none: the call is outside every run'}")
        lines.append(f"dialect   {self.dialect}, by {self.chosen_by}")
        lines += [f"header    {k}: {v}   ({why})" for k, (v, why) in self.headers.items()]
        lines += [f"body      {name}   ({why})" for name, why in self.body.items()]
        lines += [f"setting   {name} = {value!r}" for name, value in self.settings.items()]
        for title, counts in (("passed", self.passed_over), ("news", self.news)):
            lines += [f"{title:<10}{what}: {count}" for what, count in counts.items()]
        return "\n".join(lines)


def diagnose(
    client: Any = None,
    *,
    base_url: Any = None,
    dialect: dialects.Choice | None = None,
) -> Diagnosis:
    """Return what a call made here would carry, and why. It sends nothing.

    Args:
        client: an openai client; it decides the URL and the dialect.
        base_url: where a call goes, instead of a client's.
        dialect: as `wrap` takes it, instead of the client's.

    Raises:
        ConfigError: the dialect is unknown.
    """
    settings = process.settings()
    problems: list[str] = []
    if client is not None:
        if not hasattr(client, "__tenuto_dialect__"):
            problems.append("the client is not wrapped: client = tenuto.wrap(client)")
        base_url = base_url or getattr(client, "base_url", None)
        dialect = dialect or getattr(client, "__tenuto_dialect__", None)
    if settings.disabled:
        problems.append("TENUTO_DISABLED is set: no request is marked")
    session = current_session()
    if session is None:
        problems.append("no run is in scope: with tenuto.run(...): around the call")
    origin, host = _place(base_url)
    chosen, chosen_by = _chosen(dialect, origin, host, session)
    said: dict[str, tuple[str, str]] = {}
    if session is not None and not settings.disabled:
        carried = dict(chosen.carries)
        for name, _, value in dialects.fixed(chosen, session.markers):
            said[name.decode()] = (value.decode(), carried.get(name.decode(), "dialect"))
        for name, _ in chosen.turn_names:
            said[name.decode()] = (f"n={session.state.next_turn}, …", "turn")
        if chosen.speaks_protocol:
            said["X-Request-Id"] = ("…", "one for each call")
        for name, _, value in dialects.echoes(chosen, lambda answer: session.token(origin, answer)):
            said[name.decode()] = (value.decode(), "the last answer of this origin")
    refused = process.forgone(chosen.name)
    is_marked = session is not None and not settings.disabled
    body = {one.path: one.carries for one in chosen.body if is_marked and one.path not in refused}
    return Diagnosis(
        current(),
        chosen.name,
        chosen_by,
        said,
        body,
        {
            "TENUTO_DISABLED": settings.disabled,
            "TENUTO_DIALECT": settings.dialect,
            "TENUTO_NEWS": settings.news,
            "TENUTO_STRICT": settings.strict,
        },
        dict(process.PASSED_OVER),
        dict(process.NEWS.counts),
        problems,
    )


def _place(base_url: Any) -> tuple[Origin, str]:
    if base_url is None:
        return ("", b""), ""
    try:
        parts = urlsplit(str(base_url))
        host = parts.hostname or ""
    except ValueError as error:
        raise ConfigError(f"base_url is no URL: {error}") from error
    netloc = parts.netloc.rpartition("@")[2].lower()
    default = {"http": ":80", "https": ":443"}.get(parts.scheme, "")
    return (parts.scheme, netloc.removesuffix(default).encode()), host


def _chosen(
    dialect: dialects.Choice | None, origin: Origin, host: str, session: Session | None
) -> tuple[dialects.Dialect, str]:
    environment = process.settings().dialect
    answered = process.SERVERS.speaks_protocol(origin) or (
        session is not None and session.token(origin, _wire.AFFINITY) is not None
    )
    chosen = dialects.choose(dialect, environment, host, speaks_protocol=answered)
    if dialect is not None:
        return chosen, "argument"
    plain = dialects.choose(None, None, host, speaks_protocol=answered)
    if chosen is not plain:
        return chosen, "environment"
    if not host:
        # Where it goes is not known, and an empty host is not a private one.
        return dialects.GENERIC, "default"
    return chosen, "answer" if answered else "host"
