"""The real vllm-router on loopback, in front of workers that record what arrives.

The router is a program of its own: `pip install vllm-router==0.1.17`. It is started with
nothing but its own options, and ended by the handle that started it.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from openai import OpenAI

import tenuto
from examples.demo.processes import free_ports
from tests.loopback import Arrived, Recorder, serving

_START_S = 30.0
_NAMES = ("a", "b", "c", "d")


@dataclass(frozen=True)
class Fleet:
    """A router and its workers, each of which answers with a token of its own."""

    url: str
    workers: dict[str, Recorder]
    clients: list[OpenAI] = field(default_factory=list[OpenAI])

    def client(self, dialect: str | None) -> OpenAI:
        """Return a client of the router, marked unless `dialect` is None."""
        client = OpenAI(base_url=f"{self.url}/v1", api_key="k", max_retries=0)
        self.clients.append(client)
        return tenuto.wrap(client, dialect=dialect) if dialect is not None else client

    def calls(self, *names: str) -> list[tuple[str, Arrived]]:
        """Return the model calls of some workers, of all by default: (worker, call)."""
        return [
            (name, call)
            for name in names or self.workers
            for call in self.workers[name].arrived
            if isinstance(call.body, dict)
        ]

    def forget(self) -> None:
        """Start with nothing recorded."""
        for worker in self.workers.values():
            worker.arrived.clear()
            worker.answer_fields.clear()


@contextlib.contextmanager
def routed(log: Path, workers: int, *options: str) -> Iterator[Fleet]:
    """Run a router; in `options`, `{a}`, `{b}`, ... stand for the workers' URLs."""
    recorders = {
        name: Recorder(answer_headers={"X-Agent-Affinity": f"{name}.0", "X-Agent-Served": "rank=0"})
        for name in _NAMES[:workers]
    }
    with contextlib.ExitStack() as stack:
        urls = {name: stack.enter_context(serving(app)) for name, app in recorders.items()}
        port, metrics_port = free_ports(2)
        command = [sys.executable, "-m", "vllm_router.launch_router", "--host", "127.0.0.1"]
        command += ["--port", str(port), "--prometheus-port", str(metrics_port)]
        command += ["--prometheus-host", "127.0.0.1", "--worker-startup-check-interval", "1"]
        command += [option.format(**urls) for option in options]
        out = stack.enter_context(log.open("wb"))
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_for(url, process, log)
            fleet = Fleet(url, recorders)
            yield fleet
            for client in fleet.clients:
                client.close()
        finally:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    with httpx.Client(timeout=1.0) as http:
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(httpx.HTTPError):
                if http.get(f"{url}/health").status_code == 200:
                    return
            time.sleep(0.05)
    said = log.read_text("utf-8", "replace")[-2000:]
    raise RuntimeError(f"vllm-router did not start in {_START_S} s:\n{said}")


def session_of(call: Arrived) -> Any:
    """Return the session that a worker can read in a call: its header's, or its body's."""
    return call.headers.get("x-session-id") or call.body.get("session_id")
