"""A middleware for measuring: it says which rank served, and changes nothing."""

from __future__ import annotations

import asyncio

from tenuto_vllm.asgi.routes import is_generation
from tenuto_vllm.asgi.types import App, Message, Receive, Scope, Send
from tenuto_vllm.engine import seam

HEADER = b"x-engine-rank"


class RankObserver:
    """Add `X-Engine-Rank: <rank that really served>` to every generation answer.

    Load it into vLLM with `--middleware tenuto_vllm.asgi.observer.RankObserver`.
    The rank is the engine's index among those that this API process addresses.

    | answer | header |
    |---|---|
    | one engine request, or several on one rank | that rank |
    | several engine requests on different ranks | none |
    | no engine was asked (an error, an unknown vLLM) | none |
    | a server with a single rank, status below 400 | 0 |
    | another path or method, lifespan, websocket | none; passed on untouched |
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope; errors of the wrapped application pass through."""
        if scope["type"] != "http" or not is_generation(scope):
            await self._app(scope, receive, send)
            return
        client = getattr(getattr(scope.get("app"), "state", None), "engine_client", None)
        hooked = seam.install(client)
        with seam.request_box(scope) as box:
            if not hooked:
                await self._app(scope, receive, _single_rank(client, send))
                return
            answer = _HeldAnswer(box, send)
            try:
                await self._app(scope, receive, answer.send)
            finally:
                await answer.close()


def _single_rank(client: object, send: Send) -> Send:
    """Return `send` itself, or one that names rank 0 when there is no other."""
    if seam.rank_count(client) != 1:
        return send

    async def send_with_rank(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] < 400:
            message = _with_rank(message, 0)
        await send(message)

    return send_with_rank


class _HeldAnswer:
    """Keeps the start of one answer back until the engine is chosen.

    vLLM starts a stream before it chooses, and `/v1/responses` even sends its
    first two events before. Waiting inside `send` would stop the generator that
    makes the choice, so early messages are queued and a task passes them on.
    """

    def __init__(self, box: seam.RankBox, send: Send) -> None:
        self._box = box
        self._send = send
        self._held: list[Message] = []
        self._passing = False
        self._lock = asyncio.Lock()
        self._waiter: asyncio.Task[None] | None = None

    async def send(self, message: Message) -> None:
        """Pass a message on, or keep it while the rank may still become known."""
        async with self._lock:
            if self._passing:
                await self._send(message)
                return
            self._held.append(message)
            if message["type"] == "http.response.start":
                return
            if self._box.ready.is_set() or not message.get("more_body", False):
                await self._release()
            elif self._waiter is None:
                self._waiter = asyncio.create_task(self._release_when_ready())

    async def close(self) -> None:
        """End the waiting task; without an answer's last message nothing is invented."""
        if self._waiter is not None:
            self._waiter.cancel()
            # A send that failed in there fails again in the application's own.
            await asyncio.gather(self._waiter, return_exceptions=True)

    async def _release_when_ready(self) -> None:
        await self._box.ready.wait()
        async with self._lock:
            if not self._passing:
                await self._release()

    async def _release(self) -> None:
        self._passing = True
        rank = None if self._box.spread else self._box.served
        for message in self._held:
            is_start = message["type"] == "http.response.start"
            await self._send(_with_rank(message, rank) if is_start else message)
        self._held.clear()


def _with_rank(message: Message, rank: int | None) -> Message:
    """Return a response start with the rank in its headers; unchanged for None."""
    if rank is None:
        return message
    return {**message, "headers": [*message.get("headers", ()), (HEADER, b"%d" % rank)]}
