"""Requests to one server, and their answers as they come: HTTP/1.1 on asyncio's streams.

A client library takes a millisecond for what is done here, twice for a hand-off, before the
first token. Nothing but what vLLM's server speaks is understood.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple

Headers = list[tuple[bytes, bytes]]

# RFC 9110, section 7.6.1, and what a request's new body changes.
_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer"
    b" transfer-encoding upgrade".split()
)
_OWN = frozenset(b"host content-length accept-encoding expect".split())
# vLLM closes a connection that is idle for 5 s; one that it is closing is not to be taken.
_IDLE_S = 3.0
_IDLE_MOST = 256
_CONNECT_S = 5.0
_PART_BYTES = 1 << 16
_BROKEN = (OSError, EOFError, ValueError, asyncio.LimitOverrunError)


class Unreachable(Exception):
    """A server gave no answer, or broke one off. The message is the kind of error."""


class Answer(NamedTuple):
    """The beginning of an answer; `parts` is its body as it comes, not decoded."""

    status: int
    headers: Headers
    parts: AsyncIterator[bytes]


class _Connection:
    """One connection; it can be used again when an answer was read to its end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.idle_since_s = 0.0
        self.is_reusable = False

    @property
    def is_fresh(self) -> bool:
        """Whether the server has most likely not closed it."""
        is_open = not self._reader.at_eof() and not self._writer.is_closing()
        return is_open and time.monotonic() - self.idle_since_s < _IDLE_S

    async def send(self, head: bytes, body: bytes, wait_s: float | None) -> tuple[int, Headers]:
        """Send a request; return the status and the headers of its answer."""
        self.is_reusable = False
        self._writer.write(head + body)
        async with asyncio.timeout(wait_s):
            await self._writer.drain()
            while True:
                lines = (await self._reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
                status = int(lines[0].split(b" ", 2)[1])
                if status >= 200:
                    break
        pairs = (line.partition(b":") for line in lines[1:] if line)
        return status, [(name.lower(), value.strip()) for name, _, value in pairs]

    async def parts(
        self, status: int, headers: Headers, *, has_body: bool, wait_s: float | None
    ) -> AsyncIterator[bytes]:
        """Return the body of an answer as it comes.

        Raises:
            Unreachable: it was broken off.
        """
        told = dict(headers)
        keeps = told.get(b"connection", b"").lower() != b"close"
        try:
            if not has_body or status in (204, 304):
                self.is_reusable = keeps
                return
            if told.get(b"transfer-encoding", b"").lower() == b"chunked":
                while size := int((await self._line(wait_s)).partition(b";")[0], 16):
                    async with asyncio.timeout(wait_s):
                        part = await self._reader.readexactly(size + 2)
                    yield part[:-2]
                while await self._line(wait_s) != b"\r\n":
                    pass
                self.is_reusable = keeps
                return
            left = int(told.get(b"content-length", b"-1"))
            while left:
                async with asyncio.timeout(wait_s):
                    size = _PART_BYTES if left < 0 else min(left, _PART_BYTES)
                    part = await self._reader.read(size)
                if not part:
                    if left < 0:
                        return
                    raise EOFError
                left -= len(part) if left > 0 else 0
                yield part
            self.is_reusable = keeps
        except _BROKEN as error:
            raise Unreachable(type(error).__name__) from error

    async def _line(self, wait_s: float | None) -> bytes:
        async with asyncio.timeout(wait_s):
            return await self._reader.readuntil(b"\r\n")

    def close(self) -> None:
        """Close it at once."""
        with contextlib.suppress(Exception):
            self._writer.transport.abort()


class Upstreams:
    """Connections to all servers; each request is cancelled with the task that makes it."""

    def __init__(self) -> None:
        self._idle: dict[str, deque[_Connection]] = {}

    @asynccontextmanager
    async def asked(
        self,
        method: str,
        url: str,
        headers: Iterable[tuple[bytes, bytes]] = (),
        body: bytes = b"",
        wait_s: float | None = None,
    ) -> AsyncGenerator[Answer]:
        """Send a request; the answer is read to its end within the block, or cancelled.

        Args:
            method: of HTTP.
            url: whole.
            headers: of a client; those about its connection are left out.
            body: of the request.
            wait_s: longest wait for the answer and between two parts of it; any without one.

        Raises:
            Unreachable: the server did not answer, or `parts` broke off.
        """
        root, head = _head(method, url, headers, len(body))
        connection = self._kept(root)
        is_kept = connection is not None
        try:
            connection = connection or await _open(root)
            try:
                status, got = await connection.send(head, body, wait_s)
            except (ConnectionError, asyncio.IncompleteReadError) as error:
                # One that the server was closing; it has not read the request.
                if not is_kept or getattr(error, "partial", b""):
                    raise
                connection.close()
                connection = await _open(root)
                status, got = await connection.send(head, body, wait_s)
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, _BROKEN):
                raise Unreachable(type(error).__name__) from error
            raise
        try:
            parts = connection.parts(status, got, has_body=method != "HEAD", wait_s=wait_s)
            yield Answer(status, end_to_end(got), parts)
        finally:
            if connection.is_reusable:
                connection.idle_since_s = time.monotonic()
                self._idle.setdefault(root, deque()).append(connection)
                self._sweep(root)
            else:
                connection.close()

    async def read(
        self,
        method: str,
        url: str,
        headers: Iterable[tuple[bytes, bytes]] = (),
        body: bytes = b"",
        wait_s: float | None = None,
    ) -> tuple[int, bytes]:
        """Return the status and the whole body of an answer.

        Raises:
            Unreachable: as above.
        """
        async with self.asked(method, url, headers, body, wait_s) as answer:
            return answer.status, b"".join([part async for part in answer.parts])

    def sweep(self) -> None:
        """Close the connections that have been idle for so long that their server closes them."""
        for root in self._idle:
            self._sweep(root)

    def _sweep(self, root: str) -> None:
        kept = self._idle[root]
        # Those on the left have been idle for longest.
        while kept and (len(kept) > _IDLE_MOST or not kept[0].is_fresh):
            kept.popleft().close()

    async def close(self) -> None:
        """Close all connections."""
        for kept in self._idle.values():
            for one in kept:
                one.close()
        self._idle.clear()

    def _kept(self, root: str) -> _Connection | None:
        kept = self._idle.get(root)
        while kept:
            # The newest: those before it grow old, and are closed.
            connection = kept.pop()
            if connection.is_fresh:
                return connection
            connection.close()
        return None


async def _open(root: str) -> _Connection:
    scheme, _, place = root.partition("://")
    host, _, port = place.rpartition(":")
    async with asyncio.timeout(_CONNECT_S):
        return _Connection(
            *await asyncio.open_connection(
                host.strip("[]"), int(port), ssl=True if scheme == "https" else None
            )
        )


def _head(
    method: str, url: str, headers: Iterable[tuple[bytes, bytes]], length: int
) -> tuple[str, bytes]:
    """Return the server's root with its port, and the head of a request."""
    scheme, _, rest = url.partition("://")
    place, _, path = rest.partition("/")
    has_port = place.rpartition("]")[2].count(":") == 1
    usual = 443 if scheme == "https" else 80
    root = f"{scheme}://{place}" if has_port else f"{scheme}://{place}:{usual}"
    lines = [
        f"{method} /{path} HTTP/1.1\r\nhost: {place}\r\naccept-encoding: identity".encode(
            "latin-1"
        ),
        *(name + b": " + value for name, value in end_to_end(headers, _OWN)),
        b"content-length: %d\r\n\r\n" % length,
    ]
    return root, b"\r\n".join(lines)


def end_to_end(
    headers: Iterable[tuple[bytes, bytes]], also: frozenset[bytes] = frozenset()
) -> Headers:
    """Return the headers that are not about one connection, names in lower case."""
    given = [(name.lower(), value) for name, value in headers]
    named = b",".join(value for name, value in given if name == b"connection")
    hop = _HOP | also | {name.strip().lower() for name in named.split(b",")}
    return [one for one in given if one[0] not in hop]
