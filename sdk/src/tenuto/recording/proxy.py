"""A proxy that passes everything through untouched and records the model calls in it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterable
from typing import Any

from tenuto.recording.body import kind_of
from tenuto.recording.recorder import Recorder
from tenuto.tries import Tried, now_s

http: Any
try:
    import httpx2 as http
except ImportError:
    # openai before 3 is built on httpx.
    import httpx as http

# RFC 9110, section 7.6.1: these are about one connection.
_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer"
    b" transfer-encoding upgrade".split()
)

Headers = list[tuple[bytes, bytes]]


class Proxy:
    """An ASGI app in front of one upstream."""

    def __init__(self, upstream: str, recorder: Recorder) -> None:
        self._upstream = http.URL(upstream)
        self._recorder = recorder
        # A model may think for as long as its caller waits; the caller's end ends the call.
        limits = http.Limits(max_connections=None, max_keepalive_connections=64)
        transport = http.AsyncHTTPTransport(limits=limits)
        self._client = http.AsyncClient(transport=transport, timeout=http.Timeout(None, connect=30))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass one request on, and its answer back."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        if scope["type"] != "http":
            return
        content = await _body(receive)
        if content is None:
            return
        passing = asyncio.ensure_future(self._pass(scope, content, send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({passing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # When its caller has gone the upstream is let go as well.
            passing.cancel()
            leaving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await passing

    async def _pass(self, scope: Any, content: bytes, send: Any) -> None:
        request = self._request(scope, content)
        tried = Tried(request, None)
        try:
            await self._answer(request, tried, send)
        except BaseException as error:
            tried.error = type(error).__name__
            raise
        finally:
            if scope["method"] == "POST" and kind_of(scope["path"]) is not None:
                tried.end_s = tried.end_s or now_s()
                with contextlib.suppress(Exception):
                    self._recorder.put(tried)

    def _request(self, scope: Any, content: bytes) -> Any:
        path = self._upstream.raw_path.partition(b"?")[0].rstrip(b"/") + scope["raw_path"]
        if scope["query_string"]:
            path += b"?" + scope["query_string"]
        url = self._upstream.copy_with(raw_path=path)
        headers = [one for one in _end_to_end(scope["headers"]) if one[0] != b"host"]
        return http.Request(scope["method"], url, headers=headers, content=content)

    async def _answer(self, request: Any, tried: Tried, send: Any) -> None:
        try:
            response = await self._client.send(request, stream=True)
        except http.TransportError as error:
            tried.error = type(error).__name__
            await _refuse(send, self._upstream, tried.error)
            return
        try:
            tried.status, tried.response = response.status_code, response
            tried.is_streamed = True
            headers = _end_to_end(response.headers.raw)
            await send(
                {
                    "type": "http.response.start",
                    "status": response.status_code,
                    "headers": headers,
                }
            )
            async for chunk in response.aiter_raw():
                tried.take(chunk)
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            await response.aclose()

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._client.aclose()
        await send({"type": "lifespan.shutdown.complete"})


def _end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the headers that are not about one connection, names in lower case."""
    given = [(name.lower(), value) for name, value in headers]
    named = b",".join(value for name, value in given if name == b"connection")
    hop = _HOP | {name.strip().lower() for name in named.split(b",")}
    return [one for one in given if one[0] not in hop]


async def _body(receive: Any) -> bytes | None:
    """Return a request's body, None when its caller has left."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


async def _left(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _refuse(send: Any, upstream: Any, kind: str) -> None:
    where = f"{upstream.scheme}://{upstream.netloc.decode()}"
    message = f"tenuto trace proxy: the upstream {where} did not answer ({kind})"
    error = {"message": message, "type": "upstream_unreachable", "code": 502}
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 502, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps({"error": error}).encode()})
