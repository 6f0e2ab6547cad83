"""Which of our headers a server is sent, by the host it is reached at.

A host that names itself public gets what every system understands; a private one gets
the whole protocol. `wrap(client, dialect=...)` decides for itself.
"""

from __future__ import annotations

import functools
import ipaddress
from dataclasses import dataclass

from tenuto import _wire
from tenuto.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Dialect:
    """The headers one kind of server is sent, by their names as written."""

    name: str
    headers: frozenset[bytes]


def _dialect(name: str, *headers: str) -> Dialect:
    return Dialect(name, frozenset(header.encode() for header in headers))


VLLM = _dialect("vllm", _wire.SESSION, _wire.PARENT, _wire.RUN, _wire.TURN, _wire.AFFINITY)
GENERIC = _dialect("generic", _wire.SESSION, _wire.SESSION_AFFINITY, _wire.PARENT)
PUBLIC = _dialect("public", _wire.SESSION)

DIALECTS = {dialect.name: dialect for dialect in (VLLM, GENERIC, PUBLIC)}

_PUBLIC_APIS = (
    "api.openai.com",
    "openai.azure.com",
    "cognitiveservices.azure.com",
    "services.ai.azure.com",
    "api.anthropic.com",
    "generativelanguage.googleapis.com",
    "api.mistral.ai",
    "api.x.ai",
    "api.fireworks.ai",
    "openrouter.ai",
)
# RFC 2606 and RFC 6762 names, and the suffixes that private networks use.
_PRIVATE_SUFFIXES = (
    ".localhost",
    ".local",
    ".internal",
    ".lan",
    ".home.arpa",
    ".svc",
    ".ts.net",
    ".test",
    ".example",
    ".invalid",
)


def named(name: str) -> Dialect:
    """Return the dialect called `name`.

    Raises:
        ConfigError: there is none; the message lists those there are.
    """
    # Not in the dictionary itself: what was given may not be hashable.
    if name not in tuple(DIALECTS):
        known = ", ".join(DIALECTS)
        raise ConfigError(f"dialect {name!r} is not known; choose one of {known}")
    return DIALECTS[name]


@functools.lru_cache(maxsize=256)
def for_host(host: str) -> Dialect:
    """Return the dialect of a host: private names and addresses speak `vllm`."""
    host = host.lower().rstrip(".")
    if any(host == api or host.endswith("." + api) for api in _PUBLIC_APIS):
        return PUBLIC
    return VLLM if _is_private(host) else GENERIC


def _is_private(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith(_PRIVATE_SUFFIXES)
    # Private, loopback and link-local, and 100.64.0.0/10, which VPNs use (RFC 6598).
    return not address.is_global
