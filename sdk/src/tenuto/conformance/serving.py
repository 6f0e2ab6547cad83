"""Two origins on 127.0.0.1, and what an agent must be told to call them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Collection, Generator
from typing import Any

from tenuto.conformance.app import Recorder
from tenuto.errors import ConfigError

try:
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ModuleNotFoundError as missing:
    raise ConfigError(
        "the conformance server needs uvicorn: pip install 'tenuto[tools]'"
    ) from missing

_START_S = 10.0
KEY = "tenuto-conformance"


@contextlib.contextmanager
def serving(without: Collection[str] = ()) -> Generator[tuple[str, Recorder]]:
    """Serve both origins on free ports and yield the root URL of the first, and what arrives.

    Args:
        without: troubles that are left out (`tenuto.conformance.TROUBLES`).
    """
    transports: dict[tuple[str, int], asyncio.Transport] = {}
    recorder = Recorder(without, lambda client: transports[client].abort())

    class Watched(H11Protocol):
        # ASGI has no word for a connection that ends without an answer.
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            transports[transport.get_extra_info("peername")[:2]] = transport
            super().connection_made(transport)

        def connection_lost(self, exc: Exception | None) -> None:
            if self.client is not None:
                transports.pop(self.client, None)
            super().connection_lost(exc)

    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    for one in sockets:
        # asyncio sets it only where the protocol is named; without, each answer waits 40 ms.
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    urls = [f"http://127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    recorder.second_url = urls[1]
    servers = [
        uvicorn.Server(_config(recorder.app(origin), Watched)) for origin in ("first", "second")
    ]
    thread = threading.Thread(target=lambda: asyncio.run(_serve(servers, sockets)), daemon=True)
    thread.start()
    try:
        _await_start(servers, thread)
        yield urls[0], recorder
    finally:
        for server in servers:
            server.should_exit = True
        thread.join(_START_S)


def environment(url: str, name: str) -> dict[str, str]:
    """Return the variables that lead an agent's clients to the server.

    Args:
        url: root URL of the first origin.
        name: the user's name of the run, for an agent that takes one.
    """
    around = [os.environ.get("NO_PROXY", ""), "127.0.0.1", "localhost"]
    bypass = ",".join(part for part in around if part)
    return {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_BASE": f"{url}/v1",
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": KEY,
        "AZURE_OPENAI_ENDPOINT": url,
        "AZURE_OPENAI_API_KEY": KEY,
        "OPENAI_API_VERSION": "2025-04-01-preview",
        "NO_PROXY": bypass,
        "no_proxy": bypass,
        "TENUTO_KEY": os.environ.get("TENUTO_KEY") or KEY,
        "TENUTO_CONFORMANCE_URL": url,
        "TENUTO_CONFORMANCE_NAME": name,
    }


def _config(app: Any, protocol: type[asyncio.Protocol]) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )


async def _serve(servers: list[uvicorn.Server], sockets: list[socket.socket]) -> None:
    await asyncio.gather(
        *(server.serve(sockets=[one]) for server, one in zip(servers, sockets, strict=True))
    )


def _await_start(servers: list[uvicorn.Server], thread: threading.Thread) -> None:
    deadline = time.monotonic() + _START_S
    while not all(server.started for server in servers):
        if time.monotonic() > deadline or not thread.is_alive():
            raise RuntimeError("the conformance server did not start")
        time.sleep(0.005)
