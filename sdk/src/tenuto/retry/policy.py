"""Which failed calls are tried again, where, and when. Pure."""

from __future__ import annotations

import email.utils
import math
import re
from collections.abc import Mapping
from typing import Any

from openai import APIConnectionError, APIError, APIResponseValidationError, APIStatusError

from tenuto.errors import StreamInterrupted
from tenuto.shape import is_object

# A server that asks for more is not waited for, as with openai's own retries.
MAX_SERVER_WAIT_S = 120.0

_OUT_OF_MONEY = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
_PASSING_CODES = frozenset(
    {"server_error", "rate_limit_exceeded", "overloaded", "overloaded_error"}
)
# By name, so that httpx and httpx2 are one and neither is imported for it.
_NOT_SENT = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout"})
_NOT_BEGUN = frozenset({408, 409, 429, 503})
_LOCK = re.compile(r"(?<![a-z])lock", re.IGNORECASE)
_STATE_FIELDS = ("previous_response_id", "conversation", "background")
_STATE_ROUTES = ("/conversations", "/threads")
_STATELESS = frozenset(
    {"/chat/completions", "/completions", "/responses", "/embeddings", "/moderations", "/models"}
)


def is_retryable(error: BaseException) -> bool:
    """Tell whether the same call may succeed when it is tried again.

    | error | again |
    |---|---|
    | code or type `insufficient_quota`, `billing_hard_limit_reached` | no, whatever else it says |
    | timeout, connection error | yes |
    | status, with `x-should-retry: true` or `false` | as it says |
    | status 408, 429, 500 and above | yes |
    | status 409 | when its error speaks of a lock |
    | other status: 400, 401, 403, 404, 422, … | no |
    | error event as a stream's first: code or type `server_error`, `rate_limit_exceeded`, \
`overloaded` (`overloaded_error`), or a number, which is taken as a status | yes |
    | stream that ended before its first item | yes |
    | anything else: JSON, validation, length or content filter, cancellation, Ctrl-C | no |
    """
    if isinstance(error, StreamInterrupted):
        return not error.partial
    if not isinstance(error, APIError) or isinstance(error, APIResponseValidationError):
        return False
    if not _OUT_OF_MONEY.isdisjoint(_said(error)):
        return False
    if isinstance(error, APIStatusError):
        told = error.response.headers.get("x-should-retry")
        return told == "true" or (told != "false" and _is_passing(error, error.status_code))
    code = str(error.code)
    return (
        isinstance(error, APIConnectionError)
        or not _PASSING_CODES.isdisjoint(_said(error))
        or (code.isdecimal() and _is_passing(error, int(code)))
    )


def _said(error: APIError) -> tuple[str, str]:
    # Some servers write a number for a code.
    return str(error.code), str(error.type)


def _is_passing(error: APIError, status: int) -> bool:
    if status == 409:
        return _LOCK.search(f"{error.code} {error.type} {error.message}") is not None
    return status in (408, 429) or status >= 500


def is_replay_safe(error: BaseException) -> bool:
    """Tell whether a server has certainly not begun what it was asked.

    | error | certain |
    |---|---|
    | no connection: refused, connect timeout, none free in the pool | yes |
    | status 408, 409, 429, 503; any with `x-should-retry: true` | yes |
    | other timeout or disconnect, other status, anything in a stream | no |
    """
    if isinstance(error, APIConnectionError):
        return not _NOT_SENT.isdisjoint(family(error.__cause__))
    if isinstance(error, APIStatusError):
        told = error.response.headers.get("x-should-retry")
        return told == "true" or error.status_code in _NOT_BEGUN
    return False


def is_stateful(url: str, *bodies: Any) -> bool:
    """Tell whether a call changes what a server keeps, so that doing it twice shows.

    Args:
        url: the route, relative to the base URL.
        bodies: the JSON body and the caller's `extra_body`; None where there is none.
    """
    return url.startswith(_STATE_ROUTES) or _has(bodies, *_STATE_FIELDS)


def is_of_conversation(*bodies: Any) -> bool:
    """Tell whether a call goes on with a conversation, which is no session's own."""
    return _has(bodies, "conversation")


def is_kept_at_home(url: str, *bodies: Any) -> bool:
    """Tell whether a call concerns a response that the server of its session keeps.

    Args:
        url: the route, relative to the base URL.
        bodies: as in `is_stateful`.
    """
    return url.startswith("/responses/") or _has(bodies, "previous_response_id")


def _has(bodies: tuple[Any, ...], *names: str) -> bool:
    return any(is_object(body) and any(map(body.get, names)) for body in bodies)


def is_anywhere(url: str) -> bool:
    """Tell whether any replica can serve a route, so that it may fail over."""
    return url in _STATELESS or url.startswith(("/audio/", "/images/"))


def moves_on(error: BaseException) -> bool:
    """Tell whether the next attempt should go to another base URL.

    A lock, a slow upload (408) or a retry that the server asked for concern the call itself,
    and stay; everything else concerns the server.
    """
    if isinstance(error, APIStatusError):
        return error.status_code == 429 or error.status_code >= 500
    return isinstance(error, APIError | StreamInterrupted)


def is_down(error: BaseException) -> bool:
    """Tell whether later calls should avoid the base URL too.

    Not after a 429: a session whose home is busy is better off at home a little later.
    """
    if isinstance(error, APIStatusError):
        return error.status_code >= 500
    return isinstance(error, APIConnectionError | StreamInterrupted)


def server_wait_s(error: BaseException, now_s: float) -> float | None:
    """Return how long a server asked to wait, None when it did not or not sensibly.

    Args:
        error: a failed call's; `retry-after-ms`, else `Retry-After` as seconds or HTTP date.
        now_s: seconds since the epoch, for a date.
    """
    if not isinstance(error, APIStatusError):
        return None
    wait_s = _read_wait_s(error.response.headers, now_s)
    return wait_s if wait_s is not None and wait_s > 0 else None


def _read_wait_s(headers: Mapping[str, str], now_s: float) -> float | None:
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            wait_s = float(headers.get(name, "")) * unit_s
        except ValueError:
            continue
        return None if math.isnan(wait_s) else wait_s
    try:
        date = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
        return date.timestamp() - now_s
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def family(error: BaseException | None) -> frozenset[str]:
    """Return the names of an exception's class and of those it is derived from."""
    return frozenset(kind.__name__ for kind in type(error).__mro__)
