"""The recording server: an ASGI app for each of its two origins, without a framework."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from tenuto import _wire
from tenuto.conformance import answers
from tenuto.conformance.captured import Origin, Outcome, Request
from tenuto.conformance.histories import Histories
from tenuto.conformance.prompts import kind_of, read_prompt
from tenuto.conformance.reading import says_session
from tenuto.conformance.script import Script, Trouble
from tenuto.conformance.shapes import record
from tenuto.conformance.speech import said

STALL_S = 0.5
_SLOW_S = 0.02
_SLOW_EVENTS = 16
_JSON = (b"content-type", b"application/json")
_EVENTS = (b"content-type", b"text/event-stream")
_ERRORS: dict[Trouble | None, tuple[int, Outcome, str]] = {
    "500": (500, "500", "api_error"),
    "429": (429, "429", "rate_limit_error"),
}
# Asks for the retry at once; the second is for clients that know only whole seconds.
_RETRY = ((b"retry-after-ms", b"1"), (b"retry-after", b"0"))
# Nothing of protocol 1 looks like this: no client may echo it.
GARBLED = b" ".join([b"no token"] * 20)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class _Wire(NamedTuple):
    """One request's way back."""

    request: Request
    receive: Receive
    send: Send
    client: tuple[str, int]


class Recorder:
    """Keeps every request in order of arrival and answers it by the script.

    Args:
        without: troubles that are left out.
        hang_up: ends the connection of a peer, given as (host, port), without a word.
    """

    def __init__(
        self, without: Collection[str], hang_up: Callable[[tuple[str, int]], None]
    ) -> None:
        self.requests: list[Request] = []
        self.second_url = ""
        self._script = Script(without)
        self._histories = Histories()
        self._hang_up = hang_up
        self._connections: dict[tuple[str, int], int] = {}
        self._numbers = itertools.count(1)
        self._refused_news = False
        self._start_s = time.monotonic()

    def app(self, origin: Origin) -> App:
        """Return the ASGI app of one origin."""

        async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                return
            client: tuple[str, int] = tuple(scope["client"])
            request = self._arrived(scope, client, await _read(receive), origin)
            await self._answer(_Wire(request, receive, send, client))
            request.end_s = self._now_s()

        return app

    def _now_s(self) -> float:
        return time.monotonic() - self._start_s

    def _arrived(
        self, scope: MutableMapping[str, Any], client: tuple[str, int], raw: bytes, origin: Origin
    ) -> Request:
        query = scope["query_string"].decode("latin-1")
        request = Request(
            number=next(self._numbers),
            origin=origin,
            connection=self._connections.setdefault(client, len(self._connections) + 1),
            at_s=self._now_s(),
            method=scope["method"],
            path=scope["path"],
            query=query,
            headers=tuple(scope["headers"]),
            body=_parsed(raw),
        )
        kind = kind_of(request.path) if request.method == "POST" else None
        body = record(request.body)
        if kind is not None and body:
            request.prompt = read_prompt(kind, body)
            request.place = self._histories.place(request.prompt, _conversation(body))
        hop = parse_qs(query).get("hop", [""])[0]
        if origin == "second" and hop.isdecimal():
            request.hop_of = int(hop)
        self.requests.append(request)
        return request

    async def _answer(self, wire: _Wire) -> None:
        request = wire.request
        if request.prompt is None or request.place is None:
            await self._answer_other(wire)
            return
        trouble: Trouble | None = None
        if request.origin == "first":
            trouble = self._script.next(request.place, is_marked=says_session(request))
        if (refusal := _ERRORS.get(trouble)) is not None:
            status, outcome, kind = refusal
            payload = json.dumps(answers.other.error(kind, "refused by the script")).encode()
            await self._send(wire, status, outcome, payload, [_JSON, *_RETRY])
        elif trouble == "drop":
            request.outcome = "drop"
            self._hang_up(wire.client)
            while (await wire.receive())["type"] != "http.disconnect":
                pass
        elif trouble == "redirect":
            query = f"{request.query}&" if request.query else ""
            target = f"{self.second_url}{request.path}?{query}hop={request.number}"
            await self._send(wire, 307, "redirect", b"", [(b"location", target.encode())])
        else:
            if trouble == "stall":
                await asyncio.sleep(STALL_S)
            await self._speak(wire, was_garbled=trouble == "garbled")

    async def _answer_other(self, wire: _Wire) -> None:
        request = wire.request
        outcome: Outcome = "answered"
        status, answer = answers.other.answer(
            request.method, request.path, request.body, request.number
        )
        if request.path.startswith("/tenuto/") and not self._refused_news:
            # A client that tells news must do without an ear for it.
            self._refused_news, status, outcome = True, 500, "500"
        await self._send(wire, status, outcome, json.dumps(answer).encode(), [_JSON])

    async def _speak(self, wire: _Wire, *, was_garbled: bool) -> None:
        request = wire.request
        assert request.prompt is not None
        assert request.place is not None
        body = record(request.body)
        kind = request.prompt.kind
        name = self._histories.answer(
            request.number, request.prompt, request.place, _conversation(body)
        )
        answer = said(request.prompt, request.place, body, name)
        request.was_garbled = was_garbled
        headers = self._markers(request)
        counted = answer.prompt_tokens + answer.output_tokens
        if not body.get("stream"):
            request.usage_tokens = counted
            payload = json.dumps(answers.whole(kind, answer)).encode()
            await self._send(wire, 200, "answered", payload, [_JSON, *headers])
            return
        usage = bool(record(body.get("stream_options")).get("include_usage"))
        if usage or kind in {"responses", "messages"}:
            request.usage_tokens = counted
        events = answers.streamed(kind, answer, with_usage=usage)
        await self._start(wire, 200, "answered", [_EVENTS, *headers])
        for index, event in enumerate(events):
            if request.place.depth % 2 and index < _SLOW_EVENTS:
                await asyncio.sleep(_SLOW_S)
            await wire.send({"type": "http.response.body", "body": event, "more_body": True})
        await wire.send({"type": "http.response.body", "body": b""})

    def _markers(self, request: Request) -> list[tuple[bytes, bytes]]:
        """Return the answer's own markers, and note the token among them."""
        if request.was_garbled:
            return [
                (_wire.AFFINITY.lower().encode(), GARBLED),
                (_wire.SERVED.lower().encode(), b"rank=;;"),
            ]
        request.token = _wire.affinity_token(f"{request.origin}-origin", request.number)
        names = [_wire.AFFINITY, "x-session-token"]
        if request.header("x-aibrix-session-key"):
            names.append("x-session-id")
        served = _wire.encode_served(_wire.Served(rank=0, home=0, why="home"))
        return [
            *((name.lower().encode(), request.token.encode()) for name in names),
            (_wire.SERVED.lower().encode(), served.encode()),
        ]

    async def _send(
        self,
        wire: _Wire,
        status: int,
        outcome: Outcome,
        payload: bytes,
        headers: list[tuple[bytes, bytes]],
    ) -> None:
        length = (b"content-length", str(len(payload)).encode())
        await self._start(wire, status, outcome, [*headers, length])
        body = b"" if wire.request.method == "HEAD" else payload
        await wire.send({"type": "http.response.body", "body": body})

    async def _start(
        self, wire: _Wire, status: int, outcome: Outcome, headers: list[tuple[bytes, bytes]]
    ) -> None:
        wire.request.status, wire.request.outcome = status, outcome
        wire.request.answered_s = self._now_s()
        await wire.send({"type": "http.response.start", "status": status, "headers": headers})


async def _read(receive: Receive) -> bytes:
    raw, more = b"", True
    while more:
        message = await receive()
        raw += message.get("body", b"")
        more = message.get("more_body", False)
    return raw


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else None
    except ValueError:
        return None


def _conversation(body: dict[str, Any]) -> Any:
    given = body.get("conversation")
    return record(given).get("id") if isinstance(given, dict) else given
