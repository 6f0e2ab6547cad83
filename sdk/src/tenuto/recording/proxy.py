"""A proxy that passes everything through untouched and records the model calls in it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import re
from collections.abc import Iterable
from typing import Any

from tenuto.errors import ConfigError
from tenuto.recording.body import kind_of
from tenuto.recording.recorder import Recorder
from tenuto.tried import Tried, now_s

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

# RFC 9112, section 3.2.2: a caller may name the server that it means.
_ORIGIN = re.compile(rb"https?://[^/?]*", re.IGNORECASE)
# What a recorder can read everywhere: other encodings need packages of their own.
_READABLE = frozenset({b"gzip", b"x-gzip", b"deflate", b"identity"})

_log = logging.getLogger("tenuto.recording.proxy")

Headers = list[tuple[bytes, bytes]]


class Proxy:
    """An ASGI app in front of one upstream."""

    def __init__(self, upstream: str, recorder: Recorder) -> None:
        """Prepare for an upstream.

        Raises:
            ConfigError: `upstream` is no URL of a server.
        """
        self._upstream, self._credentials = upstream_of(upstream)
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
        # A server that ends cancels this, and would log what it raises.
        with contextlib.suppress(asyncio.CancelledError):
            try:
                await asyncio.wait({passing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                # When its caller has gone the upstream is let go as well.
                passing.cancel()
                leaving.cancel()
                await passing

    @property
    def upstream(self) -> str:
        """The upstream's address, without credentials."""
        return f"{self._upstream.scheme}://{self._upstream.netloc.decode()}"

    async def _pass(self, scope: Any, content: bytes, send: Any) -> None:
        try:
            request = self._request(scope, content)
        except (http.InvalidURL, ValueError):
            # Such as `OPTIONS *`, which is about this server.
            await _refuse(send, 400, "bad_request", "the request's target is no path")
            return
        tried = Tried(request, None)
        try:
            await self._answer(request, tried, send)
        except BaseException as error:
            tried.error = type(error).__name__
            raise
        finally:
            if _is_recorded(scope):
                tried.end_s = tried.end_s or now_s()
                with contextlib.suppress(Exception):
                    self._recorder.put(tried)

    def _request(self, scope: Any, content: bytes) -> Any:
        target = _ORIGIN.sub(b"", scope["raw_path"], count=1)
        if not target.startswith(b"/"):
            raise ValueError("no path")
        path = self._upstream.raw_path.partition(b"?")[0].rstrip(b"/") + target
        if scope["query_string"]:
            path += b"?" + scope["query_string"]
        url = self._upstream.copy_with(raw_path=path)
        headers = [one for one in _end_to_end(scope["headers"]) if one[0] != b"host"]
        if _is_recorded(scope):
            headers = [_readable(one) for one in headers]
        if self._credentials and all(name != b"authorization" for name, _ in headers):
            headers.append((b"authorization", self._credentials))
        return http.Request(scope["method"], url, headers=headers, content=content)

    async def _answer(self, request: Any, tried: Tried, send: Any) -> None:
        try:
            response = await self._client.send(request, stream=True)
        except http.TransportError as error:
            tried.error = type(error).__name__
            message = f"the upstream {self.upstream} did not answer ({tried.error})"
            await _refuse(send, 502, "upstream_unreachable", message)
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
            tried.is_whole = True
            await send({"type": "http.response.body", "body": b""})
        except http.TransportError as error:
            # Without an end the caller's answer is broken off as well.
            tried.error = type(error).__name__
            _log.warning("the upstream %s broke off an answer (%s)", self.upstream, tried.error)
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


async def _refuse(send: Any, status: int, kind: str, what: str) -> None:
    error = {"message": f"tenuto trace proxy: {what}", "type": kind, "code": status}
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps({"error": error}).encode()})


def _is_recorded(scope: Any) -> bool:
    return scope["method"] == "POST" and kind_of(scope["path"]) is not None


def upstream_of(text: str) -> tuple[Any, bytes | None]:
    """Return a server's URL, and the credentials in it as a header says them.

    Raises:
        ConfigError: it is none.
    """
    try:
        url = http.URL(text)
    except (http.InvalidURL, ValueError) as error:
        raise ConfigError("the upstream is not a URL") from error
    has_port = url.port is None or 0 < url.port < 1 << 16
    is_server = url.scheme in {"http", "https"} and url.host and has_port
    if not is_server or url.query or url.fragment:
        raise ConfigError("the upstream is a URL such as http://localhost:8000, without ? and #")
    # In the URL they would take the place of the caller's own.
    return url.copy_with(userinfo=b""), _basic(url)


def _basic(url: Any) -> bytes | None:
    """Return the credentials that a URL holds, as a header says them."""
    if not url.userinfo:
        return None
    return b"Basic " + base64.b64encode(f"{url.username}:{url.password}".encode())


def _readable(header: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Return a header as it goes on: of encodings those that the answer can be read in."""
    name, value = header
    if name != b"accept-encoding":
        return header
    asked = [one.strip() for one in value.split(b",")]
    kept = [one for one in asked if one.partition(b";")[0].strip().lower() in _READABLE]
    return header if kept == asked else (name, b", ".join(kept) or b"identity")
