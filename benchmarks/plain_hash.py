"""What a hash of the session id does by itself: vLLM's rank header, and nothing of load."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from zlib import crc32

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]


class PlainHash:
    """ASGI middleware: `X-Session-ID` modulo the ranks, as `X-data-parallel-rank`."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Serve one ASGI scope."""
        session = dict(scope.get("headers", ())).get(b"x-session-id")
        if session is not None:
            core = scope["app"].state.engine_client.engine_core
            rank = b"%d" % (crc32(session) % len(core.core_engines))
            headers = [*scope["headers"], (b"x-data-parallel-rank", rank)]
            scope = {**scope, "headers": headers}
        await self._app(scope, receive, send)
