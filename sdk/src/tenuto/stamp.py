"""Marking one HTTP request: what it is sent, by whose decision, and in which dialect."""

from __future__ import annotations

import functools
import hashlib
import marshal
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any, NamedTuple

from tenuto import _wire, dialects, process, raw_headers
from tenuto.context import current_call
from tenuto.dialects import (
    Dialect,
    body_patch,
    echoes,
    fixed,
    merge,
    route_of,
    varying,
    with_markers,
)
from tenuto.raw_headers import Raw
from tenuto.redirects import Sent, guard
from tenuto.session import NO_HINTS, Hints, Session
from tenuto.sessions import Origin, origin_of
from tenuto.shape import is_object
from tenuto.turns import Try, open_try

# One for each logical call, so that a server's log can be read beside the program's.
_REQUEST = raw_headers.name("X-Request-Id")
# openai's own prefix of the key that it makes for a call and keeps over its retries.
_CALL_KEY = "stainless-python-retry-"
_MAX_DROP = 2
_HOST = b"host"
_CREDENTIAL = b"authorization"
_NO_NAMES: frozenset[bytes] = frozenset()

Build = Callable[[Any], Any]


class Plan(NamedTuple):
    """What is decided before the request is built.

    Attributes:
        session: whose call it is.
        hints: what the program says of the turn.
        origin: where it goes.
        dialect: how it is marked there.
        attempt: the turn's try, when the body carries it.
        options: openai's, with the body fields added.
        fields: paths of the body fields that were added.
    """

    session: Session
    hints: Hints
    origin: Origin
    dialect: Dialect
    attempt: Try | None = None
    options: Any = None
    fields: tuple[str, ...] = ()


def marked(client: Any, options: Any, build: Build) -> Any:
    """Return openai's HTTP request for `options`, marked with the session in scope.

    Args:
        client: the wrapped client.
        options: openai's `FinalRequestOptions`.
        build: makes the request of options; its errors pass.
    """
    plan = None
    try:
        call = current_call()
        if call is not None and not process.settings().disabled:
            plan = _plan(client, options, *call)
    except Exception:
        process.pass_over("mark")
    if plan is None:
        return build(options)
    request = build(options if plan.options is None else plan.options)
    try:
        found = raw_headers.found(request.headers, _names(plan.dialect))
        plan.session.state.credential = hash(found.pop(_CREDENTIAL, None))
        # The Host header is at hand, and httpx makes it of the URL.
        if found.pop(_HOST, None) != plan.origin[1]:
            request, plan = _rerouted(client, options, request, plan, build)
            found = raw_headers.found(request.headers, _names(plan.dialect))
            found.pop(_HOST, None)
            found.pop(_CREDENTIAL, None)
        decided = found.keys() | _said(client, options)
        # Where the caller names another session, what we know of ours would mislead.
        if not decided & plan.dialect.identity:
            _mark(client, options, request, plan, decided, build)
        elif plan.options is not None:
            request = build(options)
    except Exception:
        process.pass_over("mark")
    return request


def _rerouted(
    client: Any, options: Any, request: Any, plan: Plan, build: Build
) -> tuple[Any, Plan]:
    """Return the request and the plan for where a subclass of the program's has sent the call."""
    origin = origin_of(request.url)
    if origin == plan.origin:
        return request, plan
    if plan.options is not None:
        request = build(options)
    dialect = dialect_at(client, origin, request.url.host, plan.session)
    return request, plan._replace(origin=origin, dialect=dialect, options=None, fields=())


def dialect_at(client: Any, origin: Origin, host: str, session: Session) -> Dialect:
    """Return how `client` marks a request to `origin`: it, the environment or the host says."""
    return dialects.choose(
        client.__tenuto_dialect__,
        process.settings().dialect,
        host,
        speaks_protocol=_speaks_protocol(origin, session),
    )


def _plan(client: Any, options: Any, session: Session, hints: Hints) -> Plan | None:
    origin, dialect = _place(client, options.url, session)
    if not dialect.body or _said(client, options) & dialect.identity:
        return Plan(session, hints, origin, dialect)
    if _names_a_session(dialect, options):
        return None
    attempt = open_try(session, hints, options, _size_of(options), time.monotonic())
    markers = session.markers._replace(affinity=session.token(origin, _wire.AFFINITY))
    text = ""
    if attempt is not None:
        text = attempt.text
        markers = markers._replace(turn=_wire.Turn(n=attempt.n, ttl=attempt.ttl))
    patch = body_patch(
        dialect,
        markers,
        text,
        route_of(options.url),
        root=session.root_id,
        without=process.forgone(dialect.name),
    )
    extra = merge(patch, options.json_data, options.extra_json)
    if extra is None:
        return Plan(session, hints, origin, dialect, attempt)
    patched = options.model_copy(update={"extra_json": extra})
    return Plan(session, hints, origin, dialect, attempt, patched, tuple(_added(patch, options)))


def _mark(  # noqa: PLR0917 - on every call: keywords cost
    client: Any, options: Any, request: Any, plan: Plan, decided: Set[bytes], build: Build
) -> None:
    session, hints, origin, dialect, attempt, patched, fields = plan
    if attempt is None:
        attempt = open_try(session, hints, options, _size(request), time.monotonic())
    markers = _headers(session, hints, origin, dialect, attempt)
    if dialect.speaks_protocol:
        markers.append((*_REQUEST, _call_id(options)))
    if decided:
        markers = [item for item in markers if item[1] not in decided]
    sent = Sent(
        request.url,
        origin,
        markers,
        session,
        dialect,
        attempt,
        fields,
        (lambda: build(options)) if patched is not None else None,
    )
    # Without the guard no marker: it could follow a redirect to a stranger.
    guard(client, request, sent)
    raw_headers.extend(request.headers, markers)
    if dialect.baggage:
        _add_baggage(request, session, origin, attempt)


def _headers(
    session: Session, hints: Hints, origin: Origin, dialect: Dialect, attempt: Try | None
) -> list[Raw]:
    for name, known in session.encoded:
        if name == dialect.name:
            markers = [*known]
            break
    else:
        made = fixed(dialect, session.markers)
        session.encoded.append((dialect.name, made))
        markers = [*made]
    turn = b""
    if attempt is not None and dialect.turn_names:
        said = attempt.text
        if attempt.attempt == 0 and (
            ended := process.SERVERS.take_ended((origin, session.state.credential), _MAX_DROP)
        ):
            whole = f'{said}, drop="{" ".join(ended)}"'
            said = whole if len(whole) <= _wire.TURN_BYTES else said
        turn = said.encode()
    if turn:
        for name in dialect.turn_names:
            markers.append((*name, turn))
    if hints is not NO_HINTS:
        is_final = hints.expect is not None and hints.expect.next == "end"
        markers += varying(dialect, b"", hints.prio, is_final=is_final)
    if dialect.echo:
        markers += echoes(dialect, lambda name: session.token(origin, name))
    return markers


def _size(request: Any) -> int:
    try:
        return len(request.content)
    except Exception:
        # A body that is made while it is sent.
        return 0


def _size_of(options: Any) -> int:
    """Return about the size that the body will have, before it is built."""
    try:
        return len(marshal.dumps(options.json_data))
    except ValueError:
        return 0


def _names_a_session(dialect: Dialect, options: Any) -> bool:
    """Tell whether the caller's own body names a session: then ours would mislead."""
    theirs = {**_object(options.json_data), **_object(options.extra_json)}
    return any(each.path in theirs for each in dialect.body if each.carries == "session")


def _added(patch: dict[str, Any], options: Any) -> Iterator[str]:
    """Yield the paths of a patch that the caller's own body leaves to us."""
    theirs = {**_object(options.json_data), **_object(options.extra_json)}
    for name, value in patch.items():
        if is_object(value):
            held = _object(theirs.get(name))
            yield from (f"{name}.{inner}" for inner in value if inner not in held)
        elif name not in theirs:
            yield name


def _object(value: Any) -> Mapping[Any, Any]:
    return value if is_object(value) else {}


def _add_baggage(request: Any, session: Session, origin: Origin, attempt: Try | None) -> None:
    markers = session.markers._replace(affinity=session.token(origin, _wire.AFFINITY))
    existing = request.headers.get("baggage", "")
    value = with_markers(existing, markers, attempt.text if attempt is not None else "")
    if value is not None:
        request.headers["baggage"] = value


def _place(client: Any, url: str, session: Session) -> tuple[Origin, Dialect]:
    """Return the origin that a request to `url` goes to, and how it is marked there."""
    if not url.startswith("/"):
        whole = client._prepare_url(url)
        origin = origin_of(whole)
        return origin, dialect_at(client, origin, whole.host, session)
    base = client._base_url
    known = client.__dict__.get("_tenuto_place")
    if known is None or known[0] is not base:
        asked = (client.__tenuto_dialect__, process.settings().dialect, base.host)
        either = [dialects.choose(*asked, speaks_protocol=speaks) for speaks in (False, True)]
        known = client.__dict__["_tenuto_place"] = (base, origin_of(base), *either)
    _, origin, before, after = known
    if before is after or not _speaks_protocol(origin, session):
        return origin, before
    return origin, after


def _speaks_protocol(origin: Origin, session: Session) -> bool:
    return (
        process.SERVERS.speaks_protocol(origin) or session.token(origin, _wire.AFFINITY) is not None
    )


@functools.lru_cache(maxsize=64)
def _names(dialect: Dialect) -> frozenset[bytes]:
    names = dialect.sends | {_HOST, _CREDENTIAL}
    return names | {_REQUEST[1]} if dialect.speaks_protocol else names


def _call_id(options: Any) -> bytes:
    """Return an id that is one over openai's retries of a call; a caller's own key is hashed."""
    key: str | None = options.idempotency_key
    if key is None:
        return secrets.token_hex(16).encode()
    if key.startswith(_CALL_KEY):
        return key[len(_CALL_KEY) :].encode("ascii", "ignore")
    raw = key.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(raw, digest_size=16).hexdigest().encode()


def _said(client: Any, options: Any) -> Set[bytes]:
    """Return the headers, in lower case, that the caller or the client has set or omitted.

    An `Omit` is not among the request's headers, but is a decision all the same. openai's
    NotGiven is false, as is an empty mapping.
    """
    headers, customs = options.headers, client._custom_headers
    if not (headers or customs):
        return _NO_NAMES
    return {raw_headers.name(name)[1] for given in (headers, customs) if given for name in given}
