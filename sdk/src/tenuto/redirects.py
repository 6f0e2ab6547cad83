"""Keeping our headers from following a redirect to another origin.

openai's clients follow redirects, with every header but Authorization. AzureOpenAI keeps
its api-key back by the same means: a hook of the HTTP client, which sees every hop.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from openai._base_client import AsyncAPIClient

from tenuto.raw_headers import Raw
from tenuto.sessions import Origin, SessionState, origin_of

_KEY = "tenuto.sent"


class Sent(NamedTuple):
    """What was put on a request; it stays with the request over every hop."""

    url: Any
    origin: Origin
    markers: list[Raw]
    state: SessionState
    token: str | None


def guard(client: Any, request: Any, sent: Sent) -> None:
    """Have the markers taken off `request` as soon as it leaves its origin.

    The hook stays with the HTTP client, which others may share; it looks at requests
    that were given to this function and at no others.
    """
    request.extensions[_KEY] = sent
    hooks = client._client.event_hooks["request"]
    hook = _strip_async if isinstance(client, AsyncAPIClient) else _strip
    if hook not in hooks:
        hooks.append(hook)


def sent_with(request: Any) -> Sent | None:
    """Return what was put on a request, None when it was not marked."""
    sent: Sent | None = request.extensions.get(_KEY)
    return sent


def _strip(request: Any) -> None:
    sent = sent_with(request)
    # The first hop has the very URL that was guarded.
    if sent is None or sent.url is request.url or sent.origin == origin_of(request.url):
        return
    for _, lower, _ in sent.markers:
        request.headers.pop(lower.decode(), None)


async def _strip_async(request: Any) -> None:
    _strip(request)
