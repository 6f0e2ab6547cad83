"""Keeping our headers from following a redirect to another origin.

openai's clients follow redirects, with every header but Authorization. AzureOpenAI keeps
its api-key back by the same means: a hook of the HTTP client, which sees every hop.
"""

from __future__ import annotations

from typing import Any

from openai._base_client import AsyncAPIClient

from tenuto.raw_headers import Raw
from tenuto.sessions import Origin, origin_of

_KEY = "tenuto.guard"


def guard(client: Any, request: Any, origin: Origin, markers: list[Raw]) -> None:
    """Take `markers` off `request` again as soon as it leaves `origin`.

    The hook stays with the HTTP client, which others may share; it looks at requests
    that were given to this function and at no others.
    """
    request.extensions[_KEY] = (request.url, origin, markers)
    hooks = client._client.event_hooks["request"]
    hook = _strip_async if isinstance(client, AsyncAPIClient) else _strip
    if hook not in hooks:
        hooks.append(hook)


def _strip(request: Any) -> None:
    guarded: tuple[Any, Origin, list[Raw]] | None = request.extensions.get(_KEY)
    # The first hop has the very URL that was guarded.
    if guarded is None or guarded[0] is request.url:
        return
    _, origin, markers = guarded
    if origin != origin_of(request.url):
        for _, lower, _ in markers:
            request.headers.pop(lower.decode(), None)


async def _strip_async(request: Any) -> None:
    _strip(request)
