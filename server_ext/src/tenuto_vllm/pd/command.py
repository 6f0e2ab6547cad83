"""`tenuto-vllm pd`: serve the application."""

from __future__ import annotations

import argparse
import os
import signal
import socket
from pathlib import Path
from typing import Any

from tenuto_vllm import logs
from tenuto_vllm.config import ConfigError

KEY = "TENUTO_PD_KEY"
_PORTS = 65_535


def add(commands: Any) -> None:
    """Add the command to those of `tenuto-vllm`."""
    about = "serve prefill and decode servers of one host behind one address"
    parser = commands.add_parser(
        "pd",
        help=about,
        description=f"{about.capitalize()}: each turn is prefilled where it costs least. "
        f"{KEY} holds the servers' key, if they take one.",
    )
    seconds: dict[str, Any] = {"type": float, "metavar": "S"}
    parser.add_argument(
        "--prefill", nargs="+", default=[], metavar="URL", help="servers that prefill for others"
    )
    parser.add_argument(
        "--decode", nargs="+", default=[], metavar="URL", help="servers that answer, one or more"
    )
    parser.add_argument("--host", default="127.0.0.1", help="to listen at (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8790, help="default: 8790; 0 picks a free one")
    parser.add_argument(
        "--lease", default=30.0, **seconds, help="vLLM's kv_lease_duration (default: 30)"
    )
    parser.add_argument(
        "--costs", type=Path, metavar="FILE", help="JSON with costs or points, as measured"
    )
    parser.add_argument("--slo-ttft", **seconds, help="promised time to the first token")
    parser.add_argument("--slo-itl", **seconds, help="promised time between two tokens")
    parser.add_argument(
        "--stage-least", default=10.0, **seconds, help="a remote prefill has it (default: 10)"
    )
    parser.add_argument(
        "--stage-most",
        default=60.0,
        **seconds,
        help="then what hangs is computed where it is decoded (default: 60)",
    )
    parser.add_argument(
        "--always",
        choices=("remote", "local"),
        default="",
        help="prefill each turn there, to compare",
    )
    parser.add_argument("--shadow", action="store_true", help="only log and count the decision")
    parser.add_argument(
        "--bidirectional",
        action="store_true",
        help="the servers are started with bidirectional_kv_xfer",
    )
    parser.add_argument(
        "--block-size", type=int, default=128, help="of the servers, tokens (default: 128)"
    )
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> list[str]:
    """Serve until the process is told to end, and then until what was asked is answered.

    Raises:
        ConfigError: an option cannot be used, or a package is missing.
    """
    try:
        import uvicorn  # noqa: PLC0415 - one of the extra
    except ImportError as missing:
        raise ConfigError("this needs uvicorn: pip install 'tenuto-vllm[pd]'") from missing
    from tenuto_vllm.pd.app import App  # noqa: PLC0415 - other commands need none of it

    app = App(_options(given), block_size=given.block_size)
    listener = _listen(given.host, given.port)
    logs.set_up("info")
    config = uvicorn.Config(
        app,
        lifespan="on",
        log_level="warning",
        # It would hold query strings, and those at times hold keys.
        access_log=False,
        # The servers' own go through.
        server_header=False,
        date_header=False,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            print(f"listening on {_url(listener)}", flush=True)

    server = Server(config)
    # Uvicorn raises a signal again once it has shut down, for the handler that it found.
    # With this one it finds its own, and the process ends with status 0.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, server.handle_exit)
    server.run(sockets=[listener])
    return []


def _options(given: argparse.Namespace) -> Any:
    from tenuto_vllm.pd.measured import read_costs  # noqa: PLC0415 - as above
    from tenuto_vllm.pd.options import Options  # noqa: PLC0415 - as above

    key = os.environ.get(KEY, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"{KEY} holds what is no key: something that is not printable ASCII.")
    if given.block_size < 1:
        raise ConfigError("--block-size is above 0.")
    if not 0 <= given.port <= _PORTS:
        raise ConfigError(f"--port is 0 to {_PORTS}.")
    return Options(
        given.prefill,
        given.decode,
        lease_s=given.lease,
        costs=read_costs(given.costs, is_bidirectional=given.bidirectional),
        always=given.always,
        shadow=given.shadow,
        is_bidirectional=given.bidirectional,
        slo_ttft_s=given.slo_ttft,
        slo_itl_s=given.slo_itl,
        stage_least_s=given.stage_least,
        stage_most_s=given.stage_most,
        key=key,
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}.") from error
    # asyncio sets it only on sockets that name their protocol, and these do not; without
    # it each streamed chunk waits some 40 ms for the client's acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
