"""What an operator has to say of two systems: `name:option` in text, functions in Python."""

from __future__ import annotations

import functools
import re
from dataclasses import replace

from tenuto.dialects.model import Dialect, check_name
from tenuto.dialects.routers import AIBRIX, PRODUCTION_STACK
from tenuto.errors import ConfigError

_POLICY = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
# A session in one of these would break the request, or hand the session to strangers.
_TAKEN = frozenset(
    {
        *("authorization", "proxy-authorization", "api-key", "x-api-key", "cookie", "host"),
        *("connection", "content-length", "content-type", "content-encoding", "transfer-encoding"),
        *("accept", "accept-encoding", "expect", "te", "trailer", "upgrade", "user-agent"),
        *("traceparent", "tracestate", "baggage", "idempotency-key"),
    }
)


@functools.lru_cache(maxsize=64)
def production_stack(session_key: str) -> Dialect:
    """Return the production-stack dialect for a router with `--session-key <session_key>`.

    Raises:
        ConfigError: no header of that name may be sent.
    """
    if check_name(session_key).lower() in _TAKEN:
        raise ConfigError(f"{session_key!r} has another meaning in HTTP; choose another header")
    carried = {name.lower(): marker for name, marker in PRODUCTION_STACK.carries}
    if carried.get(session_key.lower(), "session") != "session":
        raise ConfigError(f"{session_key!r} carries another marker; choose another header")
    others = tuple(
        (name, marker)
        for name, marker in PRODUCTION_STACK.carries
        if name.lower() != session_key.lower()
    )
    return replace(
        PRODUCTION_STACK,
        name=f"production-stack:{session_key}",
        carries=((session_key, "session"), *others),
        sources=((session_key, PRODUCTION_STACK.sources[0][1]), *PRODUCTION_STACK.sources),
    )


@functools.lru_cache(maxsize=64)
def aibrix(routing_strategy: str) -> Dialect:
    """Return the AIBrix dialect that asks for a routing policy, such as `session-affinity`.

    Raises:
        ConfigError: it is no policy's name.
    """
    if _POLICY.fullmatch(routing_strategy) is None:
        raise ConfigError(
            f"{routing_strategy!r} cannot name a policy: lower-case letters, digits and hyphens"
        )
    return replace(
        AIBRIX,
        name=f"aibrix:{routing_strategy}",
        says=(("routing-strategy", routing_strategy),),
    )


OPTIONS = {"production-stack": production_stack, "aibrix": aibrix}
