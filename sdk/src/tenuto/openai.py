"""`wrap(client)`: the one seam with openai's clients.

The client's class is swapped in place for a subclass that overrides three methods, so
that the object, its type for a type checker, copies (`with_options`, `copy`), raw and
streaming responses and openai's own retries all keep working, and other wrappers
compose in either order:

* `request` notes the session of each logical call, once;
* `_build_request` runs per attempt and marks the finished HTTP request, where every
  header of the caller, of the client and of its HTTP client is already there to win;
* `_process_response` reads the answer's headers.

Each of ours ends in the original, and an error of ours is logged and passed over.
"""

from __future__ import annotations

import functools
import logging
from typing import Any, TypeVar

from openai import AsyncOpenAI, OpenAI
from openai._base_client import AsyncAPIClient, SyncAPIClient

from tenuto import _wire, dialects, raw_headers
from tenuto.call import Call, open_call
from tenuto.dialects import Dialect
from tenuto.errors import ConfigError
from tenuto.raw_headers import Raw
from tenuto.redirects import guard
from tenuto.sessions import Origin, origin_of

C = TypeVar("C", bound="SyncAPIClient | AsyncAPIClient")

_log = logging.getLogger("tenuto")
_PLAIN = tuple(getattr(kind, "_prepare_options", None) for kind in (OpenAI, AsyncOpenAI))
_SESSION = raw_headers.name(_wire.SESSION)
_TURN = raw_headers.name(_wire.TURN)
_AFFINITY = raw_headers.name(_wire.AFFINITY)
_OURS = frozenset(
    raw_headers.name(header)[1]
    for header in (
        *(_wire.SESSION, _wire.SESSION_AFFINITY, _wire.PARENT),
        *(_wire.RUN, _wire.TURN, _wire.AFFINITY),
    )
)


def wrap(client: C, *, dialect: str | None = None) -> C:
    """Stamp the calls of an openai client with the session they are made in.

    Args:
        client: `OpenAI`, `AsyncOpenAI`, `AzureOpenAI`, `AsyncAzureOpenAI` or a
            subclass. It is changed in place; clients made from it by `with_options`
            or `copy` are stamped too. Wrapping twice changes nothing.
        dialect: the kind of server, `vllm`, `generic` or `public`; by default chosen
            by the host that a request goes to.

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
    if chosen is not None or not hasattr(kind, "__tenuto_dialect__"):
        client.__class__ = _stamped_class(kind.__dict__.get("__tenuto_base__", kind), chosen)
    return client


class _Headers(dict[str, Any]):
    """The caller's headers, carrying their call from one seam to the next."""

    __slots__ = ("call", "carried")

    call: Call
    carried: bool


@functools.lru_cache(maxsize=64)
def _stamped_class(base: type[Any], dialect: Dialect | None) -> type[Any]:
    # Of an async client these return the original's coroutine, so one serves both.
    def request(self: Any, cast_to: Any, options: Any, **rest: Any) -> Any:
        return base.request(self, cast_to, _snapshot(options), **rest)

    def build(self: Any, options: Any, **rest: Any) -> Any:
        return _mark(self, options, base._build_request(self, options, **rest))

    def process(self: Any, *args: Any, **given: Any) -> Any:
        _learn(given)
        return base._process_response(self, *args, **given)

    def prepare(self: Any, options: Any) -> Any:
        return _carried(options, base._prepare_options(self, options))

    async def prepare_async(self: Any, options: Any) -> Any:
        return _carried(options, await base._prepare_options(self, options))

    # The names stay: openai's User-Agent is made of the class's own.
    body: dict[str, Any] = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__tenuto_base__": base,
        "__tenuto_dialect__": dialect,
    }
    if not hasattr(base, "__tenuto_dialect__"):
        body |= {"request": request, "_build_request": build, "_process_response": process}
        if base._prepare_options not in _PLAIN:
            # Azure's makes a new dict of the headers there, and a user's may.
            is_async = issubclass(base, AsyncAPIClient)
            body["_prepare_options"] = prepare_async if is_async else prepare
    return type(base.__name__, (base,), body)


def _snapshot(options: Any) -> Any:
    """Return the options of a call with its session noted on them.

    openai makes the options for one call and copies them before it uses them, so they are
    written to; options that come again, from a caller who keeps them, are copied first.
    """
    try:
        call = open_call(options)
        if isinstance(options.headers, _Headers):
            options = options.model_copy()
            options.headers = _carrying(options, call) if call else dict(options.headers)
        elif call is not None:
            options.headers = _carrying(options, call)
    except Exception:
        _report("note the session of")
    return options


def _carried(before: Any, after: Any) -> Any:
    try:
        call = getattr(before.headers, "call", None)
        if call is not None and not isinstance(after.headers, _Headers):
            after.headers = _carrying(after, call)
    except Exception:
        _report("note the session of")
    return after


def _mark(client: Any, options: Any, request: Any) -> Any:
    """Mark one attempt. Another wrapper may stand in front of `request`, on the instance."""
    try:
        if not isinstance(options.headers, _Headers):
            call = open_call(options)
            if call is None:
                return request
            options.headers = _carrying(options, call)
        said: _Headers = options.headers
        decided = _decided(client, said, request.headers)
        # A caller that names another session: what we know of ours would mislead.
        if _SESSION[1] not in decided:
            origin = origin_of(request.url)
            markers = _markers(said.call, origin, client.__tenuto_dialect__)
            if decided:
                markers = [item for item in markers if item[1] not in decided]
            # Without the guard no marker: it could follow a redirect to a stranger.
            guard(client, request, origin, markers)
            raw_headers.extend(request.headers, markers)
            said.carried = True
    except Exception:
        _report("mark")
    return request


def _decided(client: Any, said: _Headers, headers: Any) -> set[bytes]:
    """Return which of our headers the caller, the client or its HTTP client has decided."""
    decided = raw_headers.present(headers, _OURS)
    # An Omit is not among the request's headers, but is a decision all the same.
    for given in (said, client._custom_headers):
        if given:
            decided |= {raw_headers.name(name)[1] for name in given} & _OURS
    return decided


def _markers(call: Call, origin: Origin, dialect: Dialect | None) -> list[Raw]:
    session = call.session
    token = session.token(origin)
    known = dialect or (dialects.VLLM if token else dialects.for_host(origin[1]))
    markers = session.headers(known)
    if _TURN[0] in known.headers and (turn := call.turn()) is not None:
        fork = "inherit" if session.fork == "inherit" and turn.n == 0 else None
        markers.append((*_TURN, _turn_value(turn.n, turn.next_attempt(), call.phase, fork)))
    if token is not None and _AFFINITY[0] in known.headers:
        markers.append((*_AFFINITY, token.encode()))
    return markers


# Turns of different sessions say the same: low indices, first attempts.
@functools.lru_cache(maxsize=4096)
def _turn_value(n: int, attempt: int, phase: str | None, fork: str | None) -> bytes:
    said = _wire.Turn(n=n, attempt=attempt, phase=phase, fork=fork)
    return _wire.encode_turn(said).encode()


def _learn(given: dict[str, Any]) -> None:
    try:
        options = given.get("options")
        headers = options.headers if options is not None else None
        if not isinstance(headers, _Headers) or not headers.carried:
            return
        response = given["response"]
        token = raw_headers.value(response.headers, _AFFINITY[1])
        if token is not None and _wire.is_opaque(token):
            headers.call.session.state.keep_token(origin_of(response.url), token)
    except Exception:
        _report("read the answer of")


def _carrying(options: Any, call: Call) -> _Headers:
    # openai's NotGiven is false, as is an empty mapping.
    headers = _Headers(options.headers or ())
    headers.call, headers.carried = call, False
    return headers


def _report(step: str) -> None:
    _log.debug("tenuto could not %s a request; it goes on", step, exc_info=True)
