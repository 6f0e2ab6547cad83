"""Keeping our markers from following a redirect to another origin.

openai's clients follow redirects, with every header but Authorization. AzureOpenAI keeps
its api-key back by the same means: a hook of the HTTP client, which sees every hop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from openai._base_client import AsyncAPIClient

from tenuto.dialects import Dialect, without_markers
from tenuto.raw_headers import Raw
from tenuto.session import Session
from tenuto.sessions import Origin, origin_of
from tenuto.turns import Try

_KEY = "tenuto.sent"


class Sent(NamedTuple):
    """What was put on a request; it stays with the request over every hop.

    Attributes:
        url: the request's own, as it was marked.
        origin: of that URL.
        markers: the headers that were added.
        session: the session it was made in.
        dialect: how it was marked.
        attempt: the turn's try, None when the call opens no turn.
        fields: names of the body fields that were added.
        plain: makes the request without them, None when there are none.
    """

    url: Any
    origin: Origin
    markers: list[Raw]
    session: Session
    dialect: Dialect
    attempt: Try | None
    fields: tuple[str, ...] = ()
    plain: Callable[[], Any] | None = None


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
    if sent.dialect.baggage and (value := request.headers.pop("baggage", None)) is not None:
        theirs = without_markers(value)
        if theirs:
            request.headers["baggage"] = theirs
    # A 303 has become a GET and carries no body.
    if sent.plain is not None and request.headers.get("content-length"):
        plain = sent.plain()
        request.stream = plain.stream
        request.headers["content-length"] = plain.headers["content-length"]
        if hasattr(plain, "_content"):
            request._content = plain._content


async def _strip_async(request: Any) -> None:
    _strip(request)
