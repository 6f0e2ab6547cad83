"""`tenuto trace proxy`: record the model calls of programs that cannot be changed."""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from tenuto.errors import ConfigError
from tenuto.identity import ID_BYTES
from tenuto.install_key import install_key
from tenuto.recording.events import Rules
from tenuto.recording.placing import Placing
from tenuto.recording.proxy import Proxy
from tenuto.recording.recorder import opened

_GOOD, _UNUSABLE = 0, 2


def main(argv: Sequence[str]) -> int:
    """Serve the proxy until it is interrupted.

    Returns:
        0 when it was, 2 when it cannot be served.
    """
    options = _parser().parse_args(argv)
    try:
        return _serve(options)
    except (ConfigError, ModuleNotFoundError) as error:
        print(f"tenuto trace proxy: {error}", file=sys.stderr)
        return _UNUSABLE


def _serve(options: argparse.Namespace) -> int:
    upstream: str = options.upstream
    url = urlsplit(upstream)
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise ConfigError("--upstream is a URL such as http://localhost:8000")
    try:
        import uvicorn  # noqa: PLC0415 - one of the tools
    except ModuleNotFoundError as missing:
        raise ConfigError("the proxy needs uvicorn: pip install 'tenuto[tools]'") from missing
    key = install_key()
    rules = Rules(secrets.token_hex(ID_BYTES), key, options.text)
    with opened(options.out, rules, 1 << 30, 8, Placing(key)) as recorder:
        app = Proxy(upstream, recorder)
        # Its access log would hold query strings, and those at times hold keys.
        config = uvicorn.Config(
            app,
            host=options.host,
            port=options.port,
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
        )
        server = uvicorn.Server(config)
        print(
            f"recording to {options.out}: calls to http://{options.host}:{options.port}"
            f" go on to {url.scheme}://{url.hostname}",
            flush=True,
        )
        try:
            server.run()
        except KeyboardInterrupt:
            return _GOOD
    return _GOOD if server.started else _UNUSABLE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tenuto trace proxy", description=__doc__)
    parser.add_argument("--upstream", required=True, metavar="URL", help="root of the server")
    parser.add_argument(
        "--out", type=Path, default=Path("run.jsonl"), metavar="FILE", help="default: run.jsonl"
    )
    parser.add_argument("--host", default="127.0.0.1", help="to listen at (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8788, help="default: 8788")
    parser.add_argument("--text", action="store_true", help="write prompts and answers as well")
    return parser
