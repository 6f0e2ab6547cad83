"""`wrap(client)`: the one seam with openai's clients.

The client's class is swapped in place for a subclass that overrides four methods, so
that the object, its type for a type checker, copies (`with_options`, `copy`), raw and
streaming responses and openai's own retries all keep working, and other wrappers
compose in either order:

* `request` takes one snapshot per logical call;
* `_prepare_options` keeps it where a subclass rewrites the headers (Azure);
* `_build_request` runs per attempt and marks the finished HTTP request, where every
  header of the caller, of the client and of its HTTP client is already there to win;
* `_process_response` reads the answer's headers.

Each of ours ends in the original, and an error of ours is logged and passed over.
"""

from __future__ import annotations

import functools
import logging
from typing import Any, TypeVar

from openai._base_client import AsyncAPIClient, SyncAPIClient

from tenuto import _wire, dialects
from tenuto.context import Raw, Session, current_session
from tenuto.dialects import Dialect
from tenuto.errors import ConfigError
from tenuto.sessions import OpenTurn, Origin
from tenuto.turn import fingerprint, is_turn, phase_of

C = TypeVar("C", bound="SyncAPIClient | AsyncAPIClient")

_log = logging.getLogger("tenuto")
_GUARD = "tenuto.guard"
_SESSION = _wire.SESSION.lower().encode()
_TURN = (_wire.TURN.encode(), _wire.TURN.lower().encode())
_AFFINITY = (_wire.AFFINITY.encode(), _wire.AFFINITY.lower().encode())
_OURS = frozenset(
    name.lower().encode()
    for name in (_wire.SESSION_AFFINITY, _wire.PARENT, _wire.RUN, _wire.TURN, _wire.AFFINITY)
)
_NOWHERE: Origin = ("", "", None)
_PORTS = {"http": 80, "https": 443}


def wrap(client: C, *, dialect: str | None = None) -> C:
    """Stamp the calls of an openai client with the session they are made in.

    Args:
        client: `OpenAI`, `AsyncOpenAI`, `AzureOpenAI`, `AsyncAzureOpenAI` or a
            subclass. It is changed in place; clients made from it by `with_options`
            or `copy` are stamped too. Wrapping twice changes nothing.
        dialect: the kind of server, `vllm`, `generic` or `public`; by default chosen
            by the host of the base URL.

    Returns:
        The same object.

    Raises:
        ConfigError: `client` is not an openai client, or the dialect is unknown.
    """
    kind: type[Any] = type(client)
    if not issubclass(kind, SyncAPIClient | AsyncAPIClient):
        raise ConfigError(
            f"wrap() takes an openai client such as OpenAI() or AsyncOpenAI(), got {kind.__name__}"
        )
    chosen = dialects.named(dialect) if dialect is not None else None
    base: type[Any] = getattr(kind, "__tenuto_base__", kind)
    if base is kind or dialect is not None:
        client.__class__ = _stamped_class(base, chosen)
    return client


class _Call:
    """One logical call: the session, the turn, and what the caller decided himself."""

    __slots__ = ("phase", "session", "turn")

    def __init__(self, session: Session, turn: OpenTurn | None, phase: str | None) -> None:
        self.session = session
        self.turn = turn
        self.phase = phase


class _Headers(dict[str, Any]):
    """The caller's headers, carrying their call from one seam to the next."""

    __slots__ = ("call", "origin")

    call: _Call
    origin: Origin


@functools.lru_cache(maxsize=64)
def _stamped_class(base: type[Any], dialect: Dialect | None) -> type[Any]:
    async def request_async(self: Any, cast_to: Any, options: Any, **rest: Any) -> Any:
        return await base.request(self, cast_to, _snapshot(options), **rest)

    async def prepare_async(self: Any, options: Any) -> Any:
        return _carried(options, await base._prepare_options(self, options))

    async def process_async(self: Any, **given: Any) -> Any:
        _learn(given)
        return await base._process_response(self, **given)

    def request_sync(self: Any, cast_to: Any, options: Any, **rest: Any) -> Any:
        return base.request(self, cast_to, _snapshot(options), **rest)

    def prepare_sync(self: Any, options: Any) -> Any:
        return _carried(options, base._prepare_options(self, options))

    def process_sync(self: Any, **given: Any) -> Any:
        _learn(given)
        return base._process_response(self, **given)

    def build(self: Any, options: Any, **rest: Any) -> Any:
        return _mark(self, options, base._build_request(self, options, **rest), dialect)

    is_async = issubclass(base, AsyncAPIClient)
    # The names stay: openai's User-Agent is made of the class's own.
    return type(
        base.__name__,
        (base,),
        {
            "__module__": base.__module__,
            "__qualname__": base.__qualname__,
            "__doc__": base.__doc__,
            "__tenuto_base__": base,
            "request": request_async if is_async else request_sync,
            "_prepare_options": prepare_async if is_async else prepare_sync,
            "_process_response": process_async if is_async else process_sync,
            "_build_request": build,
        },
    )


def _snapshot(options: Any) -> Any:
    """Note the call on its options; each attempt works on a copy of them.

    Options that come a second time are a second call: what they carry of the first is
    replaced.
    """
    try:
        call = _open_call(options)
        if call is not None:
            options.headers = _carrying(options, call)
        elif isinstance(options.headers, _Headers):
            options.headers = dict(options.headers)
    except Exception:
        _report("snapshot")
    return options


def _carried(before: Any, after: Any) -> Any:
    try:
        call = getattr(before.headers, "call", None)
        if call is not None and not isinstance(after.headers, _Headers):
            after.headers = _carrying(after, call)
    except Exception:
        _report("carry")
    return after


def _mark(client: Any, options: Any, request: Any, dialect: Dialect | None) -> Any:
    try:
        if not isinstance(options.headers, _Headers):
            # Another wrapper may stand in front of `request`, on the instance.
            _snapshot(options)
        if isinstance(options.headers, _Headers):
            said: _Headers = options.headers
            said.origin = origin = _target(client, options.url, request)
            added = _add_markers(said, origin, request.headers, dialect)
            _guard(client, request, origin, added)
    except Exception:
        _report("mark")
    return request


def _learn(given: dict[str, Any]) -> None:
    try:
        headers = given["options"].headers
        if not isinstance(headers, _Headers):
            return
        response = given["response"]
        token = _value(response.headers, _AFFINITY[1])
        if token is not None and _wire.is_opaque(token):
            origin = _origin(response.url) if response.history else headers.origin
            headers.call.session.state.keep_token(origin, token)
    except Exception:
        _report("learn")


def _report(step: str) -> None:
    _log.debug("tenuto could not %s a request; it goes on unmarked", step, exc_info=True)


def _open_call(options: Any) -> _Call | None:
    session = current_session()
    if session is None:
        return None
    if not is_turn(options.method, options.url):
        return _Call(session, None, None)
    turn = session.state.open_turn(fingerprint(options.json_data))
    return _Call(session, turn, phase_of(options.json_data, turn.n))


def _carrying(options: Any, call: _Call) -> _Headers:
    # openai's NotGiven is false, as is an empty mapping.
    headers = _Headers(options.headers or ())
    headers.call, headers.origin = call, _NOWHERE
    return headers


def _add_markers(
    said: _Headers, origin: Origin, headers: Any, dialect: Dialect | None
) -> list[Raw]:
    """Add what the dialect knows and nobody else decided; return what was added."""
    call = said.call
    session = call.session
    decided = _names(headers)
    if said:
        decided.update([name.lower().encode("ascii", "replace") for name in said])
    if _SESSION in decided:
        # The caller names another session: what we know of ours would mislead.
        return []
    token = _token(session, origin)
    known = dialect or (dialects.VLLM if token else dialects.for_host(origin[1]))
    ours = session.headers(known)
    if call.turn is not None and _TURN[0] in known.headers:
        fork = call.session.fork if call.turn.n == 0 else None
        value = _turn_value(call.turn.n, call.turn.next_attempt(), call.phase, fork)
        ours.append((*_TURN, value))
    if token is not None and _AFFINITY[0] in known.headers:
        ours.append((*_AFFINITY, token.encode()))
    if not decided.isdisjoint(_OURS):
        ours = [item for item in ours if item[1] not in decided]
    _extend(headers, ours)
    return ours


# Turns of different sessions say the same: low indices, first attempts.
@functools.lru_cache(maxsize=4096)
def _turn_value(n: int, attempt: int, phase: str | None, fork: str | None) -> bytes:
    inherits = fork if fork == "inherit" else None
    said = _wire.Turn(n=n, attempt=attempt, phase=phase, fork=inherits)
    return _wire.encode_turn(said).encode()


# httpx's and httpx2's `Headers` look through all of theirs for every name they are asked
# for or given, half of what a call of ours would cost. The list behind them, (name as
# written, lower-case name, value) in bytes, is used where it is as known.
def _names(headers: Any) -> set[bytes]:
    try:
        return {name for _, name, _ in headers._list}
    except (AttributeError, ValueError):
        return {name.lower().encode() for name in headers}


def _value(headers: Any, name: bytes) -> str | None:
    try:
        values = [value for _, lower, value in headers._list if lower == name]
    except (AttributeError, ValueError):
        value: str | None = headers.get(name.decode())
        return value
    return values[0].decode("ascii", "replace") if values else None


def _extend(headers: Any, items: list[Raw]) -> None:
    try:
        headers._list.extend(items)
    except AttributeError:
        headers.update([(name.decode(), value.decode()) for name, _, value in items])


def _guard(client: Any, request: Any, origin: Origin, added: list[Raw]) -> None:
    """Keep our headers from following a redirect to another origin.

    openai follows redirects with every header but Authorization; AzureOpenAI guards its
    api-key by the same hook.
    """
    request.extensions[_GUARD] = (request.url, origin, added)
    hooks = client._client.event_hooks["request"]
    hook = _strip_async if isinstance(client, AsyncAPIClient) else _strip
    if hook not in hooks:
        hooks.append(hook)


def _token(session: Session, origin: Origin) -> str | None:
    own = session.state.token(origin)
    if own is None and session.fork == "inherit" and session.parent is not None:
        return session.parent.state.token(origin)
    return own


def _target(client: Any, url: str, request: Any) -> Origin:
    """Return the origin of a request: the base URL's, unless the call names its own."""
    if "://" in url:
        return _origin(request.url)
    base = client.base_url
    known: tuple[Any, Origin] | None = client.__dict__.get("_tenuto_origin")
    if known is None or known[0] is not base:
        known = client.__dict__["_tenuto_origin"] = (base, _origin(base))
    return known[1]


def _origin(url: Any) -> Origin:
    """Return (scheme, host, port) of an httpx or httpx2 URL."""
    scheme, port = url.scheme, url.port
    return scheme, url.host, _PORTS.get(scheme) if port is None else port


def _strip(request: Any) -> None:
    guard: tuple[Any, Origin, list[Raw]] | None = request.extensions.get(_GUARD)
    if guard is None or guard[0] is request.url:
        return
    _, origin, added = guard
    if origin != _origin(request.url):
        for _, name, _ in added:
            request.headers.pop(name.decode(), None)


async def _strip_async(request: Any) -> None:
    _strip(request)
