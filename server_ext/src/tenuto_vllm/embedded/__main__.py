"""`python -m tenuto_vllm.embedded`: the embedded engine from the command line."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any, cast

from tenuto_vllm.embedded import Answers, EngineSettings, create_app
from tenuto_vllm.embedded.latency import Latency
from tenuto_vllm.embedded.placements import PLACEMENTS
from tenuto_vllm.embedded.server import run
from tenuto_vllm.retention import RETENTIONS

_EPILOG = """\
One UTF-8 byte is one token. Answers are words that follow from the prompt, or the smallest
JSON that the asked schema accepts. Routes: /v1/chat/completions, /v1/completions,
/v1/responses, /v1/models, /health, /stats, and POST /reset_prefix_cache.

  python -m tenuto_vllm.embedded --ranks 4 --blocks 1024
  curl localhost:8000/v1/completions -H 'content-type: application/json' \\
       -d '{"model": "tiny", "prompt": "hello"}'
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Args:
        arguments: without the program's name; those of the process if None.
    """
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        settings = EngineSettings(
            ranks=given.ranks,
            blocks=given.blocks,
            block_size=given.block_size,
            max_model_len=given.max_model_len,
            prefill_tokens_per_s=given.prefill_tokens_per_s,
            decode_tokens_per_s=given.decode_tokens_per_s,
            latency=Latency.from_file(given.latency) if given.latency else None,
            placement=given.placement,
            retention=given.retention,
            served_model_name=given.served_model_name,
            answers=given.answers,
        )
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if given.exit_with_stdin:
        threading.Thread(target=_end_with_stdin, name="tenuto-stdin", daemon=True).start()
    try:
        run(create_app(settings, given.middleware), given.host, given.port)
    except MemoryError as error:
        print(f"no memory for a cache of {given.blocks:,} blocks: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"cannot listen on {given.host}:{given.port}: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    class Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
        pass

    defaults = EngineSettings()
    parser = argparse.ArgumentParser(
        prog="python -m tenuto_vllm.embedded",
        description="An OpenAI-shaped server with several data-parallel ranks, each with a\n"
        "prefix cache that behaves as vLLM's does. No model, no GPU.",
        epilog=_EPILOG,
        formatter_class=Help,
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to bind")
    parser.add_argument("--port", type=_port, default=8000, help="port; 0 picks a free one")
    sizes = [
        ("--ranks", defaults.ranks, "data-parallel ranks"),
        ("--blocks", defaults.blocks, "cache blocks of each rank; one is reserved"),
        ("--block-size", defaults.block_size, "tokens in a block"),
        ("--max-model-len", defaults.max_model_len, "longest prompt and output, in tokens"),
    ]
    speeds = [
        (
            "--prefill-tokens-per-s",
            defaults.prefill_tokens_per_s,
            "uncached prompt tokens, per rank",
        ),
        ("--decode-tokens-per-s", defaults.decode_tokens_per_s, "output tokens, per request"),
    ]
    for name, default, text in sizes:
        parser.add_argument(name, type=int, default=default, metavar="N", help=text)
    for name, default, text in speeds:
        parser.add_argument(name, type=float, default=default, metavar="RATE", help=text)
    parser.add_argument(
        "--latency",
        metavar="FILE",
        help="latency model of `tenuto fit`, instead of the two speeds",
    )
    parser.add_argument(
        "--placement",
        choices=tuple(PLACEMENTS),
        default=defaults.placement,
        help="where requests go that name no rank; those by session read X-Session-ID",
    )
    parser.add_argument(
        "--retention",
        choices=tuple(RETENTIONS),
        default=defaults.retention,
        help="whose cached blocks are evicted first",
    )
    parser.add_argument(
        "--served-model-name",
        default=defaults.served_model_name,
        metavar="NAME",
        help="the model's name",
    )
    parser.add_argument(
        "--answers",
        type=_function,
        metavar="MODULE.FUNCTION",
        help="what is answered: from a request's body to text, tool calls or None",
    )
    parser.add_argument(
        "--middleware",
        type=_middleware,
        action="append",
        default=[],
        metavar="MODULE.CLASS",
        help="ASGI middleware; may be repeated, the last one is outermost",
    )
    parser.add_argument(
        "--exit-with-stdin",
        action="store_true",
        help="end when standard input does: with the process that started this one",
    )
    return parser


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; ports are 0 to 65535")
    return int(text)


def _middleware(path: str) -> type[Any]:
    found = _imported(path, "MODULE.CLASS")
    if not isinstance(found, type):
        raise argparse.ArgumentTypeError(f"{path!r} is not a class")
    return found


def _function(path: str) -> Answers:
    found = _imported(path, "MODULE.FUNCTION")
    if not callable(found):
        raise argparse.ArgumentTypeError(f"{path!r} cannot be called")
    return cast("Answers", found)


def _imported(path: str, expected: str) -> object:
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise argparse.ArgumentTypeError(
            f"cannot import {path!r}, expected {expected}: {error}"
        ) from error


if __name__ == "__main__":
    sys.exit(main())
