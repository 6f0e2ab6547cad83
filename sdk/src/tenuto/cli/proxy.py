"""`tenuto trace proxy`: record the model calls of programs that cannot be changed."""

from __future__ import annotations

import argparse
import logging
import secrets
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tenuto.cli.ending import ending_as_interrupt
from tenuto.errors import ConfigError
from tenuto.identity import ID_BYTES
from tenuto.install_key import install_key
from tenuto.recording.events import Rules
from tenuto.recording.placing import Placing
from tenuto.recording.proxy import Proxy, upstream_of
from tenuto.recording.recorder import Recorder, opened

if TYPE_CHECKING:
    import uvicorn

_GOOD, _UNUSABLE = 0, 2
# An orchestrator that sends SIGTERM waits ten seconds or more for both.
_ANSWERS_WAIT_S = 3
_WRITING_WAIT_S = 60.0


def main(argv: Sequence[str]) -> int:
    """Serve the proxy until it is interrupted or terminated.

    Returns:
        0 when it was, 2 when it cannot be served.
    """
    options = _parser().parse_args(argv)
    try:
        return _serve(options)
    except (ConfigError, ModuleNotFoundError) as error:
        _say(str(error))
        return _UNUSABLE


def _serve(options: argparse.Namespace) -> int:
    try:
        import uvicorn  # noqa: PLC0415 - one of the tools
    except ModuleNotFoundError as missing:
        raise ConfigError("the proxy needs uvicorn: pip install 'tenuto[tools]'") from missing
    upstream_of(options.upstream)
    key = install_key()
    rules = Rules(secrets.token_hex(ID_BYTES), key, options.text)
    with (
        _listening(options.host, options.port) as listener,
        opened(options.out, rules, 1 << 30, 8, Placing(key)) as recorder,
    ):
        app = Proxy(options.upstream, recorder)
        # Its access log would hold query strings, and those at times hold keys.
        config = uvicorn.Config(
            app,
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=_ANSWERS_WAIT_S,
        )
        logging.getLogger("uvicorn.error").addFilter(_is_news)
        server = uvicorn.Server(config)
        with ending_as_interrupt():
            where = f"http://{_authority(listener)}"
            print(
                f"recording to {options.out}: calls to {where} go on to {app.upstream}", flush=True
            )
            is_ended = _runs_until_ended(server, listener)
            if not _is_written(recorder):
                _say("the last calls are not written")
    return _GOOD if is_ended else _UNUSABLE


def _runs_until_ended(server: uvicorn.Server, listener: socket.socket) -> bool:
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        return True
    return server.started


def _is_written(recorder: Recorder) -> bool:
    try:
        return recorder.close(_WRITING_WAIT_S)
    except KeyboardInterrupt:
        return False


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens, so that what is told of it is true."""
    if not 0 <= port < 1 << 16:
        raise ConfigError(f"--port is 0 to 65535, got {port}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = str(getattr(error, "strerror", None) or error).partition(" (")[0]
        raise ConfigError(f"cannot listen at {host}, port {port}: {reason}") from error


def _authority(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if listener.family == socket.AF_INET6 else f"{host}:{port}"


def _is_news(record: logging.LogRecord) -> bool:
    # The proxy says itself why an answer has no end.
    message = record.getMessage()
    if "without completing response" in message:
        return False
    if message.startswith("Cancel "):
        record.msg, record.args = "answers that were still open are broken off", ()
    return True


def _say(what: str) -> None:
    print(f"tenuto trace proxy: {what}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tenuto trace proxy", description=__doc__)
    parser.add_argument("--upstream", required=True, metavar="URL", help="root of the server")
    parser.add_argument(
        "--out", type=Path, default=Path("run.jsonl"), metavar="FILE", help="default: run.jsonl"
    )
    parser.add_argument("--host", default="127.0.0.1", help="to listen at (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8788, help="default: 8788; 0: a free one")
    parser.add_argument(
        "--text",
        action="store_true",
        help="write prompts and answers as well, as they are: nothing in them is redacted",
    )
    return parser
