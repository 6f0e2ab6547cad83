"""The ASGI application in front of the servers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from hashlib import blake2b
from hmac import compare_digest
from http import HTTPStatus
from urllib.parse import quote

from tenuto_vllm import logs
from tenuto_vllm.asgi.answers import answer_json, read_body, refuse, refuse_method
from tenuto_vllm.asgi.bearer import bearer
from tenuto_vllm.asgi.routes import GENERATION_PATHS
from tenuto_vllm.asgi.types import Message, Receive, Scope, Send
from tenuto_vllm.pd import place_route, stages
from tenuto_vllm.pd.asked import Asked, Unread, read
from tenuto_vllm.pd.call import Call
from tenuto_vllm.pd.desk import Desk, Lost, Request, Told
from tenuto_vllm.pd.fleet import Fleet
from tenuto_vllm.pd.numbers import Numbers, regret
from tenuto_vllm.pd.options import Options
from tenuto_vllm.pd.planner import Plan, Planner
from tenuto_vllm.pd.upstream import Unreachable, Upstreams
from tenuto_vllm.pd.watch import Watch
from tenuto_vllm.placement.split import Copies

_HEALTH = "/health"
_METRICS = "/metrics"
_BLOCK = 128
_STARTING = ((b"retry-after", b"1"),)


class App:
    """Pure ASGI, for one event loop.

    | request | what happens |
    |---|---|
    | a model call | prefilled where it is best, decoded where its session is |
    | `GET /health` | 200 once a decode server is warm, 503 before, with each server's state |
    | `GET /metrics` | numbers by role |
    | `POST /tenuto/place` | the decision alone, for a router |
    | any other HTTP request | passed on to a decode server |

    Args:
        options: how it is set up.
        told: told of each turn that was answered.
        block_size: tokens in a block of the servers' caches; one that tells another is logged.
    """

    def __init__(
        self,
        options: Options,
        told: Callable[[Told], None] | None = None,
        block_size: int = _BLOCK,
    ) -> None:
        self._options = options
        self.fleet = Fleet(options)
        self.copies = Copies(block_size)
        self._numbers = Numbers(self.fleet)
        self._upstreams = Upstreams()
        self._planner = Planner(options, self.fleet, self.copies)
        self._watch = Watch(options, self.fleet, self._upstreams, self.copies)
        self._desk = Desk(
            options, self.fleet, self._upstreams, self._planner, self._numbers, self._watch, told
        )
        self._round = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        watching = asyncio.ensure_future(self._watch.run())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        await self._upstreams.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path == _HEALTH:
            ready = self.fleet.is_ready
            states = [one.shown() for one in self.fleet.all()]
            status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
            await answer_json(send, {"ready": ready, "servers": states}, status)
        elif path == _METRICS:
            text = self._numbers.text().encode()
            kind = (b"content-type", b"text/plain; version=0.0.4")
            await send({"type": "http.response.start", "status": 200, "headers": [kind]})
            await send({"type": "http.response.body", "body": text})
        elif path == place_route.PATH:
            await self._place(scope, receive, send)
        else:
            await self._pass(scope, receive, send)

    async def _place(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await refuse_method(send, place_route.PATH, "POST")
            return
        if not self._may(scope):
            await refuse(send, HTTPStatus.UNAUTHORIZED, "This takes the servers' key.")
            return
        body = await read_body(receive, send)
        if body is None:
            return
        try:
            fields = place_route.told_of(body)
            if "answered" in fields:
                place_route.learn(fields, self.copies, self.fleet)
                await answer_json(send, {})
                return
            turn = place_route.turn_of(fields, self.copies, self._planner.promised)
            plan = self._planner.place(turn, loads=place_route.loads_of(fields))
            told = place_route.shown(plan, fields)
        except place_route.BadShape as error:
            await refuse(send, HTTPStatus.BAD_REQUEST, str(error) or place_route.SHAPE)
            return
        self.fleet.of(plan.decision.prefill or plan.decision.decode).came(time.monotonic())
        self._numbers.decided(plan)
        self._told_in_shadow(plan)
        await answer_json(send, told)

    def _may(self, scope: Scope) -> bool:
        if not self._options.key:
            return True
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        key = bearer(given) or b""
        return compare_digest(blake2b(key).digest(), blake2b(self._options.key.encode()).digest())

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve what the servers serve; who leaves takes the request along."""
        body = await _whole(receive)
        if body is None:
            return
        serving = asyncio.ensure_future(self._answer(scope, body, send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({serving, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_over = serving.done()
            serving.cancel()
            leaving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving
            if not is_over:
                logs.tell(logging.DEBUG, "client_left")

    async def _answer(self, scope: Scope, body: bytes, send: Send) -> None:
        begun = _Begun(send)
        try:
            headers = scope["headers"]
            asked = read(scope["path"], headers, body) if scope["method"] == "POST" else None
            if not self.fleet.is_ready and asked is not None:
                said = "No decode server is ready yet."
                await refuse(begun.send, HTTPStatus.SERVICE_UNAVAILABLE, said, _STARTING)
            elif asked is None:
                if scope["method"] == "POST" and _is_below_a_root(scope["path"]):
                    said = (
                        "Model calls are taken at the servers' own paths, such as /v1/completions."
                    )
                    await refuse(begun.send, HTTPStatus.NOT_FOUND, said)
                    return
                await self._other(scope, body, begun.send)
            elif (plan := self._decided(asked)) is None:
                own = stages.decode(body, asked.fields, None, 0.0, is_stream=False)
                await self._other(scope, own, begun.send)
            else:
                query = scope["query_string"].decode("latin-1")
                path = asked.path + (f"?{query}" if query else "")
                request = Request(path, headers, body, asked)
                await Call(self._desk, request, plan, begun.send).run()
                self._told_in_shadow(plan)
        except Unread as error:
            await refuse(begun.send, HTTPStatus.BAD_REQUEST, str(error))
        except (Lost, Unreachable) as error:
            if begun.is_begun:
                # Without its end the client sees that the answer was broken off.
                raise
            logs.tell(logging.WARNING, "no_answer", kind=str(error))
            said = "The decode servers gave no answer."
            await refuse(send, HTTPStatus.BAD_GATEWAY, said)

    def _decided(self, asked: Asked) -> Plan | None:
        """Return where a model call goes; None where that fails, which is not the client's."""
        try:
            plan = self._planner.plan(asked)
            self._numbers.decided(plan)
        except Exception as error:
            logs.tell(logging.WARNING, "not_decided", kind=type(error).__name__)
            self._numbers.gave_up("not_decided")
            return None
        return plan

    async def _other(self, scope: Scope, body: bytes, send: Send) -> None:
        """Pass a request on as it is."""
        decodes = self.fleet.decodes
        ready = [one for one in decodes if one.is_fit] or [one for one in decodes if one.is_up]
        ready = ready or decodes
        self._round += 1
        url = ready[self._round % len(ready)].url + quote(scope["path"])
        if scope["query_string"]:
            url += "?" + scope["query_string"].decode("latin-1")
        async with self._upstreams.asked(scope["method"], url, scope["headers"], body) as got:
            start = {"type": "http.response.start", "status": got.status, "headers": got.headers}
            await send(start)
            async for part in got.parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    def _told_in_shadow(self, plan: Plan) -> None:
        if self._options.shadow:
            wished = plan.wished
            logs.tell(
                logging.INFO,
                "would_place",
                path="local" if wished.prefill is None else "remote",
                why=wished.why,
                new_tokens=wished.new_tokens,
                regret_s=round(regret(plan), 6),
            )


class _Begun:
    """Knows whether an answer has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.is_begun = False

    async def send(self, message: Message) -> None:
        """Pass one message on."""
        self.is_begun = True
        await self._send(message)


async def _whole(receive: Receive) -> bytes | None:
    """Return a request's body, None when its client has left."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _is_below_a_root(path: str) -> bool:
    """Whether a server that was given a root path would take it for a model call."""
    return path not in GENERATION_PATHS and path.endswith(tuple(GENERATION_PATHS))


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
