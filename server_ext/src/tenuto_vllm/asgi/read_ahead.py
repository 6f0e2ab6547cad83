"""A request's body, read before the application sees it and then given to it as it came."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from tenuto_vllm.asgi.types import Message, Receive

MOST_BYTES = 32 * 1024 * 1024


class ReadAhead:
    """Stands in for `receive`; reads on the application's first call and not before.

    So an application that refuses a request by its headers never waits for the body, and
    holds none. Messages are kept here and not in a call that may be cancelled, so none is
    lost to a client's or the application's timeout.

    Args:
        receive: the server's.
        told: called once, when reading ends, with the whole body, or with none when it is
            longer than `MOST_BYTES` or its client has left. It must not raise.
    """

    def __init__(self, receive: Receive, told: Callable[[bytes], None]) -> None:
        self._receive = receive
        self._told = told
        self._held: deque[Message] = deque()
        self._bytes = 0
        self._is_read = False
        self._lock = asyncio.Lock()

    async def receive(self) -> Message:
        """Return the next message that the server had for the application."""
        if not self._is_read:
            async with self._lock:
                while not self._is_read:
                    self._keep(await self._receive())
        return self._held.popleft() if self._held else await self._receive()

    def _keep(self, message: Message) -> None:
        self._held.append(message)
        self._bytes += len(message.get("body", b""))
        is_short = self._bytes <= MOST_BYTES
        if is_short and message.get("more_body", False):
            return
        self._is_read = True
        is_whole = is_short and message["type"] == "http.request"
        bodies = (part.get("body", b"") for part in self._held)
        self._told(b"".join(bodies) if is_whole else b"")
