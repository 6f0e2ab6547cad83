"""A model on loopback that is asked by Responses frames on a websocket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

from tests.frameworks.scripted import events_of


@contextlib.contextmanager
def serving_websocket() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Serve a websocket that answers "done" to every frame.

    Yields:
        Its root URL, with http, and the headers of each handshake.
    """
    from websockets.asyncio.server import serve  # noqa: PLC0415

    shaken: list[dict[str, str]] = []

    async def answer(connection: Any) -> None:
        shaken.append({name.lower(): value for name, value in connection.request.headers.items()})
        async for _ in connection:
            for event in events_of("done"):
                await connection.send(json.dumps(event))

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def started() -> Any:
        return await serve(answer, "127.0.0.1", 0)

    async def stopped() -> None:
        server.close()
        await server.wait_closed()

    server = asyncio.run_coroutine_threadsafe(started(), loop).result(10)
    try:
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"http://127.0.0.1:{port}", shaken
    finally:
        asyncio.run_coroutine_threadsafe(stopped(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
