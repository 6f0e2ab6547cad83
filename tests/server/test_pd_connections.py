"""Connections to the servers that nobody uses are closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tenuto_vllm.pd import upstream
from tenuto_vllm.pd.upstream import Upstreams

BURST = 10


@asynccontextmanager
async def burst(upstreams: Upstreams) -> AsyncIterator[asyncio.Semaphore]:
    """Ask a server at once over many connections; yields what counts those that were closed."""
    closed, together = asyncio.Semaphore(0), asyncio.Barrier(BURST)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await together.wait()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        except (asyncio.IncompleteReadError, ConnectionError):
            closed.release()
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        await asyncio.gather(*(upstreams.read("GET", url) for _ in range(BURST)))
        yield closed
        await upstreams.close()


async def count(closed: asyncio.Semaphore, wanted: int) -> None:
    async with asyncio.timeout(5):
        for _ in range(wanted):
            await closed.acquire()


@pytest.mark.anyio
async def test_what_has_been_idle_for_long_is_closed_without_being_asked_for(monkeypatch):
    upstreams = Upstreams()
    async with burst(upstreams) as closed:
        upstreams.sweep()
        assert closed.locked()
        monkeypatch.setattr(upstream, "_IDLE_S", 0.0)
        upstreams.sweep()
        await count(closed, BURST)


@pytest.mark.anyio
async def test_what_is_too_many_is_closed(monkeypatch):
    monkeypatch.setattr(upstream, "_IDLE_MOST", 2)
    async with burst(Upstreams()) as closed:
        await count(closed, BURST - 2)
