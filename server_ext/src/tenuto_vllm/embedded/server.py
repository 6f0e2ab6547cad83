"""Running the application under uvicorn: in a thread, or as the process's only work."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette

from tenuto_vllm.embedded.app import create_app
from tenuto_vllm.embedded.clock import Clock
from tenuto_vllm.embedded.settings import EngineSettings

_START_LIMIT_S = 10.0
_STOP_LIMIT_S = 5.0


class _Server(uvicorn.Server):
    """Uvicorn that says when it is ready and ends running requests before it stops."""

    def __init__(self, app: Starlette, ready: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="on",
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=1,
        )
        super().__init__(config)
        self._engine = app.state.tenuto_view
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._engine.stop()
        await super().shutdown(sockets)


def run(app: Starlette, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT; prints `listening on http://HOST:PORT` when ready.

    Args:
        app: from `create_app`.
        host: address to bind.
        port: 0 picks a free one.

    Raises:
        OSError: the address cannot be bound.
    """
    listener = _listen(host, port)
    server = _Server(app, lambda: print(f"listening on {_url(listener)}", flush=True))
    # Uvicorn raises a signal again once it has shut down, for the handler that it found.
    # With this one it finds its own, and the process ends with status 0.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, server.handle_exit)
    server.run(sockets=[listener])


@contextmanager
def serve(
    settings: EngineSettings | None = None,
    middleware: Sequence[type[Any]] = (),
    *,
    clock: Clock | None = None,
    port: int = 0,
) -> Generator[str]:
    """Serve on loopback from a thread while the `with` block runs.

    Args:
        settings: see `create_app`.
        middleware: see `create_app`.
        clock: see `create_app`.
        port: 0 picks a free one.

    Yields:
        The base URL, `http://127.0.0.1:PORT`; OpenAI clients want `/v1` after it.

    Raises:
        OSError: the port is taken.
        RuntimeError: the server did not start, or did not stop, in time.
    """
    listener = _listen("127.0.0.1", port)
    url = _url(listener)
    ready = threading.Event()
    server = _Server(create_app(settings, middleware, clock=clock), ready.set)
    thread = threading.Thread(
        target=server.run, args=([listener],), name="tenuto-embedded", daemon=True
    )
    thread.start()
    try:
        if not ready.wait(_START_LIMIT_S):
            raise RuntimeError(f"the embedded engine did not start in {_START_LIMIT_S} s")
        yield url
    finally:
        server.should_exit = True
        thread.join(_STOP_LIMIT_S)
        listener.close()
        if thread.is_alive():
            raise RuntimeError(f"the embedded engine did not stop in {_STOP_LIMIT_S} s")


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=2048)
    # asyncio sets it only on sockets that name their protocol, and these do not; without
    # it each streamed chunk waits some 40 ms for the client's acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
