"""`wrap(client)`: the one seam with openai's clients.

The client's class is swapped in place for a subclass that overrides four methods, so
that the object, its type for a type checker, copies (`with_options`, `copy`), raw and
streaming responses and openai's own retries all keep working, and other wrappers
compose in either order:

* `request` takes one snapshot per logical call;
* `_prepare_options` runs per attempt and adds the headers;
* `_build_request` guards the finished request against redirects to another origin;
* `_process_response` reads the answer's headers.

Each of ours ends in the original, and an error of ours is logged and passed over.
"""

from __future__ import annotations

import functools
import logging
from typing import Any, TypeVar
from urllib.parse import urlsplit

from openai._base_client import AsyncAPIClient, SyncAPIClient

from tenuto import _wire, dialects
from tenuto.context import Session, current_session
from tenuto.dialects import Dialect
from tenuto.errors import ConfigError
from tenuto.sessions import OpenTurn, Origin
from tenuto.turn import fingerprint, is_turn, phase_of

C = TypeVar("C", bound="SyncAPIClient | AsyncAPIClient")

_log = logging.getLogger("tenuto")
_GUARD = "tenuto.guard"


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
    """Request headers that carry their call, and what was added, between the seams."""

    call: _Call
    origin: Origin | None = None
    added: tuple[str, ...] = ()


@functools.lru_cache(maxsize=64)
def _stamped_class(base: type[Any], dialect: Dialect | None) -> type[Any]:
    async def request_async(self: Any, cast_to: Any, options: Any, **rest: Any) -> Any:
        return await base.request(self, cast_to, _snapshot(options), **rest)

    async def prepare_async(self: Any, options: Any) -> Any:
        call = _call_of(options)
        return _stamp(self, call, await base._prepare_options(self, options), dialect)

    async def process_async(self: Any, **given: Any) -> Any:
        _learn(given)
        return await base._process_response(self, **given)

    def request_sync(self: Any, cast_to: Any, options: Any, **rest: Any) -> Any:
        return base.request(self, cast_to, _snapshot(options), **rest)

    def prepare_sync(self: Any, options: Any) -> Any:
        call = _call_of(options)
        return _stamp(self, call, base._prepare_options(self, options), dialect)

    def process_sync(self: Any, **given: Any) -> Any:
        _learn(given)
        return base._process_response(self, **given)

    def build(self: Any, options: Any, **rest: Any) -> Any:
        return _guard(self, options, base._build_request(self, options, **rest))

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
    try:
        call = _open_call(options)
        if call is None or isinstance(options.headers, _Headers):
            return options
        options = options.model_copy()
        options.headers = _carrying(options, call)
    except Exception:
        _report("snapshot")
    return options


def _call_of(options: Any) -> _Call | None:
    """Return the snapshot's call; another wrapper may have stood in front of `request`."""
    try:
        headers = options.headers
        return headers.call if isinstance(headers, _Headers) else _open_call(options)
    except Exception:
        _report("call")
        return None


def _stamp(client: Any, call: _Call | None, options: Any, dialect: Dialect | None) -> Any:
    try:
        if call is not None:
            options.headers = _stamped(client, call, options, dialect)
    except Exception:
        _report("stamp")
    return options


def _guard(client: Any, options: Any, request: Any) -> Any:
    """Keep our headers from following a redirect to another origin.

    openai follows redirects with every header but Authorization; AzureOpenAI guards its
    api-key by the same hook.
    """
    try:
        headers = options.headers
        if isinstance(headers, _Headers) and headers.added:
            request.extensions[_GUARD] = (headers.origin, headers.added)
            hooks = client._client.event_hooks["request"]
            hook = _strip_async if isinstance(client, AsyncAPIClient) else _strip
            if hook not in hooks:
                hooks.append(hook)
    except Exception:
        _report("guard")
    return request


def _learn(given: dict[str, Any]) -> None:
    try:
        headers = given["options"].headers
        response = given["response"]
        if not isinstance(headers, _Headers):
            return
        token = response.headers.get(_wire.AFFINITY)
        if token is not None and _wire.is_opaque(token):
            headers.call.session.state.keep_token(_origin(response.url), token)
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
    given: Any = options.headers
    headers = _Headers(given if hasattr(given, "items") else {})
    headers.call = call
    return headers


def _stamped(client: Any, call: _Call, options: Any, dialect: Dialect | None) -> _Headers:
    headers = _carrying(options, call)
    headers.origin = origin = _target(client, options)
    token = _token(call.session, origin)
    known = dialect or (dialects.VLLM if token else dialects.for_host(origin[1]))
    decided = {name.lower() for name in (*headers, *client._custom_headers)}
    if _wire.SESSION.lower() in decided:
        # The caller names another session: what we know of ours would mislead.
        return headers
    ours = {
        name: value
        for name, value in _wire.encode(_markers(call, token)).items()
        if name in known.headers and name.lower() not in decided
    }
    headers.update(ours)
    headers.added = tuple(ours)
    return headers


def _token(session: Session, origin: Origin) -> str | None:
    own = session.state.token(origin)
    if own is None and session.fork == "inherit" and session.parent is not None:
        return session.parent.state.token(origin)
    return own


def _markers(call: _Call, token: str | None) -> _wire.Markers:
    session, turn = call.session, call.turn
    said = _wire.Turn()
    if turn is not None:
        fork = session.fork if session.fork == "inherit" and turn.n == 0 else None
        said = _wire.Turn(n=turn.n, attempt=turn.next_attempt(), phase=call.phase, fork=fork)
    parent = session.parent.session_id if session.parent is not None else None
    return _wire.Markers(session.session_id, parent, session.run_id, said, token)


def _target(client: Any, options: Any) -> Origin:
    """Return the origin that a request goes to; absolute URLs override the base URL."""
    if "://" in options.url:
        return _origin(urlsplit(options.url))
    base = client.base_url
    known: tuple[Any, Origin] | None = client.__dict__.get("_tenuto_origin")
    if known is None or known[0] is not base:
        known = client.__dict__["_tenuto_origin"] = (base, _origin(base))
    return known[1]


def _origin(url: Any) -> Origin:
    """Return (scheme, host, port) of an httpx, httpx2 or split URL."""
    host = getattr(url, "host", None) or url.hostname or ""
    port = url.port if url.port is not None else {"http": 80, "https": 443}.get(url.scheme)
    return url.scheme, host, port


def _strip(request: Any) -> None:
    guard: tuple[Origin, tuple[str, ...]] | None = request.extensions.get(_GUARD)
    if guard is not None and guard[0] != _origin(request.url):
        for name in guard[1]:
            request.headers.pop(name, None)


async def _strip_async(request: Any) -> None:
    _strip(request)
