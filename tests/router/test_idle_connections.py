"""A front closes the connections it keeps to its servers before a server would close them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue

import httpx
import pytest

from examples.deploy.fronts import front
from tests.router.test_deploy_fronts import PROXIES

# What uvicorn waits, and vLLM by VLLM_HTTP_TIMEOUT_KEEP_ALIVE unless told.
SERVER_KEEPS_S = 5.0


@dataclass
class Connections:
    """Those that brought a call: how many did, and how long each was idle when it was closed."""

    used: int = 0
    idle_s: SimpleQueue[float] = field(default_factory=SimpleQueue[float])


@contextlib.contextmanager
def patient(connections: Connections) -> Generator[str]:
    """Serve what never closes a connection itself."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        answered: float | None = None

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            connections.used += self.answered is None
            self.answered = time.monotonic()
            self.do_GET()

        def finish(self) -> None:
            super().finish()
            if self.answered is not None:
                connections.idle_s.put(time.monotonic() - self.answered)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.mark.parametrize("name", PROXIES)
def test_a_front_closes_an_idle_connection_before_its_server_does(name: str) -> None:
    connections = Connections()
    with patient(connections) as a, patient(connections) as b, front(name, [a, b]) as up:
        # One to each of nginx's groups of servers.
        for token in ("", "a-0123456789abcdef.0", "b-0123456789abcdef.0"):
            headers = {"X-Session-ID": "s", "X-Agent-Affinity": token}
            answer = httpx.post(f"{up.base_url}/chat/completions", json={}, headers=headers)
            assert answer.status_code == 200
        assert connections.used
        idle_s = [connections.idle_s.get(timeout=20) for _ in range(connections.used)]
    assert max(idle_s) < SERVER_KEEPS_S
