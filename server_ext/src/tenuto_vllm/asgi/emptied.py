"""Calls to vLLM's own routes after which the ranks' caches are empty.

| route (vLLM 0.32) | empties them |
|---|---|
| `/reset_prefix_cache` | where it answers `"success":true` |
| `/pause` | unless `mode=keep` or `clear_cache=false` |
| `/sleep` | unless `level=0` |
| `/release_kv_cache_memory` | yes |
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import parse_qs

from tenuto_vllm.asgi.types import Message, Scope, Send

_SUCCESS = b'"success":true'
_NO = frozenset({"0", "false", "no", "off", "n", "f"})
_RESET = "/reset_prefix_cache"


def may_empty(path: str, scope: Scope) -> bool:
    """Tell whether a `POST` to `path`, if it succeeds, leaves the caches empty."""
    said = parse_qs(scope.get("query_string", b"").decode("latin-1"))

    def last(name: str) -> str:
        return said.get(name, [""])[-1].lower()

    match path:
        case "/reset_prefix_cache" | "/release_kv_cache_memory":
            return True
        case "/pause":
            return last("mode") != "keep" and last("clear_cache") not in _NO
        case "/sleep":
            return last("level") != "0"
        case _:
            return False


def watching(path: str, send: Send, emptied: Callable[[], None]) -> Send:
    """Return a `send` that calls `emptied` once the server has answered that it is so.

    Args:
        path: one that `may_empty`.
        send: the server's.
        emptied: must not raise.
    """
    is_good = False

    async def sent(message: Message) -> None:
        nonlocal is_good
        if message["type"] == "http.response.start":
            is_good = message["status"] == HTTPStatus.OK
        elif is_good and (path != _RESET or _SUCCESS in _dense(message.get("body", b""))):
            is_good = False
            emptied()
        await send(message)

    return sent


def _dense(body: bytes) -> bytes:
    return body.replace(b" ", b"")
