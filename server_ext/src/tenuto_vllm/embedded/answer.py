"""One request over HTTP: read, submit, admit, answer, and give back whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tenuto_vllm.embedded.ask import Ask, Reply
from tenuto_vllm.embedded.asked import asked
from tenuto_vllm.embedded.engine import Engine, Generation
from tenuto_vllm.embedded.errors import RequestError, error_body
from tenuto_vllm.embedded.fields import read_body
from tenuto_vllm.embedded.settings import EngineSettings
from tenuto_vllm.embedded.sse import event
from tenuto_vllm.engine import seam

_STOPPING = RequestError("The engine is stopping.", status=HTTPStatus.SERVICE_UNAVAILABLE)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one route reads its body and writes its answer.

    Attributes:
        read: body and settings to ask; raises RequestError.
        whole: a reply as one JSON object.
        events: a reply and its pieces as they come, to server-sent events.
    """

    read: Callable[[Mapping[str, Any], EngineSettings], Ask]
    whole: Callable[[Reply], dict[str, Any]]
    events: Callable[[Reply, AsyncIterator[str]], AsyncIterator[bytes]]


def json_response(
    body: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an answer in ASCII JSON, which can hold any string that a caller sent."""
    return Response(json.dumps(body), status, headers, media_type="application/json")


def error_response(error: RequestError) -> Response:
    """Return a refusal in OpenAI's error shape."""
    return json_response(error_body(error), error.status)


class GenerationRoute:
    """The ASGI application of one generation route.

    Args:
        engine: where requests go.
        dialect: how they are read and answered.
    """

    def __init__(self, engine: Engine, dialect: Dialect) -> None:
        self._engine = engine
        self._dialect = dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; return early if its client leaves."""
        request = Request(scope, receive)
        box: seam.RankBox | None = scope.get(seam.SCOPE_KEY)
        try:
            ask = self._read(await request.body())
            rank = _named_rank(request)
            if rank is None and box is not None and box.choose is not None:
                rank = box.choose(ask.prompt)
            generation = self._engine.submit(ask.prompt, ask.output, rank, asked(scope["headers"]))
        except ClientDisconnect:
            return
        except RequestError as error:
            await error_response(error)(scope, receive, send)
            return
        if box is not None:
            box.served = generation.rank
            box.measure(generation.prompt_tokens)
        sender = _Sender(scope, receive, send, generation.rank)
        with contextlib.closing(generation):
            gone = _disconnected(receive)
            stop = self._engine.stopping.wait()
            ended = await _first(self._answer(ask, generation, sender), gone, stop)
        if ended is stop:
            await sender.abandon()

    def _read(self, raw: bytes) -> Ask:
        try:
            return self._dialect.read(read_body(raw), self._engine.settings)
        except RecursionError as error:
            raise RequestError("The body is nested too deeply.") from error

    async def _answer(self, ask: Ask, generation: Generation, sender: _Sender) -> None:
        await generation.admitted()
        reply = Reply(ask, secrets.token_hex(12), int(time.time()), generation.cached_tokens)
        async with contextlib.aclosing(_generator(generation.pieces())) as pieces:
            if not ask.stream:
                async for _ in pieces:
                    pass
                await sender.whole(self._dialect.whole(reply))
                return
            await sender.start()
            async for chunk in self._dialect.events(reply, pieces):
                await sender.chunk(chunk)
            await sender.end()


class _Sender:
    """The three ways in which an answer leaves: whole, in chunks, or abandoned."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, rank: int) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._headers = {"X-Engine-Rank": str(rank)}
        self._streaming = False

    async def whole(self, body: Mapping[str, Any]) -> None:
        await self._respond(json_response(body, headers=self._headers))

    async def start(self) -> None:
        self._streaming = True
        response = Response(headers=self._headers, media_type="text/event-stream")
        # The length of a stream is not known, and Starlette has set that of an empty body.
        del response.headers["content-length"]
        await self._send(
            {"type": "http.response.start", "status": 200, "headers": response.raw_headers}
        )

    async def chunk(self, data: bytes) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def abandon(self) -> None:
        """Tell the client that the engine stops, in the way that is still open."""
        if self._streaming:
            await self.chunk(event(error_body(_STOPPING)))
            await self.end()
        else:
            await self._respond(error_response(_STOPPING))

    async def _respond(self, response: Response) -> None:
        await response(self._scope, self._receive, self._send)


def _named_rank(request: Request) -> int | None:
    # As stock vLLM: the first header of that name, and what int() cannot read is ignored.
    try:
        return int(request.headers["X-data-parallel-rank"])
    except (KeyError, ValueError):
        return None


def _generator(pieces: AsyncIterator[str]) -> AsyncGenerator[str, None]:
    return cast("AsyncGenerator[str, None]", pieces)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _first(*works: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
    """Run several coroutines until one ends; cancel the others and return that one.

    Every one has ended, its `finally` included, when this returns or is cancelled.
    """
    tasks = {asyncio.ensure_future(work): work for work in works}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    # In the order given: an answer that ended counts before a client that left.
    first = next(task for task in tasks if task in done)
    first.result()
    return tasks[first]
