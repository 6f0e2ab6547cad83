"""`wrap(client)`: the one seam with openai's clients.

The client's class is swapped in place for a subclass that overrides two methods, so that
the object, its type for a type checker, copies (`with_options`, `copy`), raw and streaming
responses and openai's own retries all keep working, and other wrappers compose in either
order:

* `_build_request` runs per attempt and marks the finished HTTP request, where every
  header of the caller, of the client and of its HTTP client is already there to win;
* `_process_response` reads the answer's headers.

Each of ours ends in the original, and an error of ours is logged and passed over.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from typing import Any, TypeVar

from openai._base_client import AsyncAPIClient, SyncAPIClient

from tenuto import _wire, dialects, raw_headers
from tenuto.context import Session, current_session
from tenuto.dialects import Dialect
from tenuto.errors import ConfigError
from tenuto.raw_headers import Raw
from tenuto.redirects import Sent, guard, sent_with
from tenuto.sessions import origin_of
from tenuto.turn import fingerprint, is_turn, model_of, phase_of

C = TypeVar("C", bound="SyncAPIClient | AsyncAPIClient")

_log = logging.getLogger("tenuto")
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
    """Mark the calls of an openai client with the session they are made in.

    Args:
        client: `OpenAI`, `AsyncOpenAI`, `AzureOpenAI`, `AsyncAzureOpenAI` or a
            subclass. It is changed in place; clients made from it by `with_options`
            or `copy` are marked too. Wrapping twice changes nothing.
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
        base = kind.__dict__.get("__tenuto_base__", kind)
        try:
            client.__class__ = _marked_class(base, chosen)
        except TypeError as error:
            raise ConfigError(f"wrap() cannot subclass {base.__name__}: {error}") from error
    return client


@functools.lru_cache(maxsize=64)
def _marked_class(base: type[Any], dialect: Dialect | None) -> type[Any]:
    def build(self: Any, options: Any, *args: Any, **given: Any) -> Any:
        return _mark(self, options, base._build_request(self, options, *args, **given))

    # Of an async client it returns the original's coroutine, so one serves both.
    def process(self: Any, *args: Any, **given: Any) -> Any:
        if "response" in given:
            _learn(given["response"])
        return base._process_response(self, *args, **given)

    # The names stay: openai's User-Agent is made of the class's own.
    body: dict[str, Any] = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__tenuto_base__": base,
        "__tenuto_dialect__": dialect,
    }
    if not hasattr(base, "__tenuto_dialect__"):
        body |= {"_build_request": build, "_process_response": process}
    return type(base.__name__, (base,), body)


def _mark(client: Any, options: Any, request: Any) -> Any:
    """Mark one attempt with the session that it is made in."""
    try:
        session = current_session()
        if session is None:
            return request
        decided = _decided(client, options, request.headers)
        if _SESSION[1] in decided:
            # The caller names another session: what we know of ours would mislead.
            return request
        origin = origin_of(request.url)
        token = session.token(origin)
        known = client.__tenuto_dialect__ or (
            dialects.VLLM if token else dialects.for_host(request.url.host)
        )
        markers = _markers(session, options, request, token, known)
        if decided:
            markers = [item for item in markers if item[1] not in decided]
        # Without the guard no marker: it could follow a redirect to a stranger.
        guard(client, request, Sent(request.url, origin, markers, session.state, token))
        raw_headers.extend(request.headers, markers)
    except Exception:
        _report("mark")
    return request


def _decided(client: Any, options: Any, headers: Any) -> set[bytes]:
    """Return which of our headers the caller, the client or its HTTP client has decided."""
    decided = raw_headers.present(headers, _OURS)
    # An Omit is not among the request's headers, but is a decision all the same. openai's
    # NotGiven is false, as is an empty mapping.
    for given in (options.headers, client._custom_headers):
        if given:
            decided |= {raw_headers.name(name)[1] for name in given} & _OURS
    return decided


def _markers(
    session: Session, options: Any, request: Any, token: str | None, known: Dialect
) -> list[Raw]:
    markers = session.headers(known)
    if _TURN[0] in known.headers and is_turn(options.method, options.url):
        body = options.json_data
        n, attempt = session.state.next_attempt(_prompt(body, options, request))
        fork = "inherit" if session.fork == "inherit" and n == 0 else None
        markers.append((*_TURN, _turn_value(n, attempt, phase_of(body, n), fork)))
    if token is not None and _AFFINITY[0] in known.headers:
        markers.append((*_AFFINITY, token.encode()))
    return markers


def _prompt(body: Any, options: Any, request: Any) -> int | None:
    try:
        return fingerprint(request.content, model_of(body))
    except Exception:
        # A body that is made while it is sent. openai's own retries keep the key, when
        # nothing else tells calls apart.
        key = options.idempotency_key
        return hash(key) if key is not None else None


# Turns of different sessions say the same: low indices, first attempts.
@functools.lru_cache(maxsize=4096)
def _turn_value(n: int, attempt: int, phase: str | None, fork: str | None) -> bytes:
    said = _wire.Turn(n=n, attempt=attempt, phase=phase, fork=fork)
    return _wire.encode_turn(said).encode()


def _learn(response: Any) -> None:
    """Keep the token of an answer for the session that asked."""
    try:
        sent = sent_with(response.request)
        if sent is None:
            return
        token = raw_headers.value(response.headers, _AFFINITY[1])
        if token is None or (token == sent.token and response.url is sent.url):
            return
        if _wire.is_opaque(token):
            sent.state.keep_token(origin_of(response.url), token)
    except Exception:
        _report("read the answer of")


def _report(step: str) -> None:
    # A handler or filter of the program's may raise, and no request may fail by it.
    with contextlib.suppress(Exception):
        _log.debug("tenuto could not %s a request; it goes on", step, exc_info=True)
