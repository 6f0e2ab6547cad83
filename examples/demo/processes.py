"""Run a server as a process group of its own, from its start to its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_POLL_S = 0.25
_PROGRESS_EVERY_S = 4.0
_STOP_GRACE_S = 10.0
_LOG_TAIL_LINES = 40


class EngineStartError(RuntimeError):
    """An engine cannot be started; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running engine.

    Attributes:
        root_url: `http://127.0.0.1:PORT`, for `/health` and `/metrics`.
        pid: process id of the server, which leads its own process group.
        log_path: file with its stdout and stderr; gone after the `with` block
            unless the caller chose the path.
        start_s: seconds from launch until it answered.
    """

    root_url: str
    pid: int
    log_path: Path
    start_s: float

    @property
    def base_url(self) -> str:
        """Return the URL for an OpenAI client: `http://127.0.0.1:PORT/v1`."""
        return f"{self.root_url}/v1"


@dataclass(frozen=True, slots=True)
class Launch:
    """What to run, and how to tell that it is ready; `name` starts a sentence."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    folder: Path
    log_path: Path
    ready_timeout_s: float
    url_when_ready: Callable[[Path], str | None]


@contextmanager
def running(launch: Launch) -> Generator[Server]:
    """Run a command in a process group of its own; yield it when ready, end it after."""
    log_path = launch.log_path.resolve()
    log_path.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with log_path.open("wb") as output:
        process = subprocess.Popen(
            launch.command,
            env=dict(launch.env),
            # Python puts the working directory on the path of -m and -c; a
            # folder named `vllm` there (tests/vllm) must not take part.
            cwd=launch.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        root_url = _wait_until_ready(process, launch, started)
        yield Server(root_url, process.pid, log_path, time.monotonic() - started)
    finally:
        _end_group(process)


def free_ports(count: int) -> list[int]:
    """Return ports of this machine that nobody listens on, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def healthy(root_url: str) -> str | None:
    """Return the URL of a server that answers `/health` with 200, else None."""
    # A proxy of the environment must not be asked about this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{root_url}/health", timeout=2) as answer:
            return root_url if answer.status == 200 else None
    except OSError:
        return None


def _wait_until_ready(process: subprocess.Popen[bytes], launch: Launch, started: float) -> str:
    """Return the server's root URL once it answers, telling stderr how long it has been."""
    told = started
    while (root_url := launch.url_when_ready(launch.log_path)) is None:
        waited_s = time.monotonic() - started
        trouble = ""
        if process.poll() is not None:
            trouble = f"ended with status {process.returncode} before it was ready."
        elif waited_s > launch.ready_timeout_s:
            trouble = f"was not ready in {launch.ready_timeout_s:g} s; raise ready_timeout_s."
        if trouble:
            log = launch.log_path.read_text(encoding="utf-8", errors="replace")
            tail = "\n".join(log.splitlines()[-_LOG_TAIL_LINES:])
            raise EngineStartError(f"{launch.name} {trouble} The end of its log:\n{tail}")
        if started + waited_s - told >= _PROGRESS_EVERY_S:
            told = started + waited_s
            print(f"{launch.name} is starting ({waited_s:.0f} s) ...", file=sys.stderr, flush=True)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_S)
    return root_url


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and all it started: SIGTERM to the leader, SIGKILL to who is left."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_GRACE_S)
    # Also after a clean end: vLLM's workers can outlive the server that started
    # them, and then only the group still names them.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
