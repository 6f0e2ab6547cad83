"""Which dialect a request is written in: what was asked for, else what its host speaks."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Sequence

from tenuto.dialects.compose import compose
from tenuto.dialects.hosts import DIALECTS, for_host
from tenuto.dialects.model import Dialect
from tenuto.dialects.options import OPTIONS
from tenuto.dialects.servers import GENERIC, VLLM
from tenuto.errors import ConfigError

Choice = str | Dialect | Sequence[str | Dialect]

_log = logging.getLogger("tenuto")


def named(choice: Choice) -> Dialect:
    """Return a dialect by its name, `name:option`, or a stack of them, outermost first.

    Args:
        choice: such as `vllm`, `production-stack:x-user-flow`, `litellm,vllm-router` or
            `["litellm", "vllm-router"]`; a dialect is itself.

    Raises:
        ConfigError: there is none of that name, or it cannot stand there; the message
            lists those there are.
    """
    if isinstance(choice, Dialect):
        return choice
    parts = choice.split(",") if isinstance(choice, str) else choice
    if not isinstance(parts, list | tuple) or not parts:
        raise _unknown(choice)
    chosen = [part if isinstance(part, Dialect) else _part(part) for part in parts]
    return functools.reduce(lambda inner, outer: compose(outer, inner), reversed(chosen))


def _part(part: object) -> Dialect:
    if not isinstance(part, str):
        raise _unknown(part)
    name, colon, option = part.strip().partition(":")
    row = DIALECTS.get(name)
    if row is None:
        raise _unknown(part)
    if not colon:
        return row
    if name not in OPTIONS:
        raise ConfigError(f"dialect {name!r} takes no option; {' and '.join(OPTIONS)} take one")
    return OPTIONS[name](option.strip())


def _unknown(given: object) -> ConfigError:
    known = ", ".join(DIALECTS)
    return ConfigError(f"dialect {given!r} is not known; choose one of {known}")


def choose(
    argument: Choice | None,
    environment: str | None,
    host: str,
    *,
    speaks_protocol: bool = False,
) -> Dialect:
    """Return the dialect of a request.

    Args:
        argument: of `wrap`; it comes first.
        environment: the value of `TENUTO_DIALECT`. One that cannot be used is ignored,
            with one warning.
        host: the request's; a public API has its dialect, a private host speaks `vllm`.
        speaks_protocol: the origin has answered in protocol 1: one of which nothing else
            is known speaks `vllm`.

    Raises:
        ConfigError: `argument` names no dialect.
    """
    if argument is not None:
        return named(argument)
    asked = _of_environment(environment) if environment else None
    if asked is not None:
        return asked
    known = for_host(host)
    return VLLM if speaks_protocol and known is GENERIC else known


# Once for a value, so that the warning comes once.
@functools.lru_cache(maxsize=16)
def _of_environment(value: str) -> Dialect | None:
    try:
        return named(value)
    except ConfigError as error:
        # A handler or filter of the program's may raise, and no request may fail by it.
        with contextlib.suppress(Exception):
            _log.warning("TENUTO_DIALECT is ignored: %s", error)
        return None
