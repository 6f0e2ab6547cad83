"""What vLLM loads of every installed package before it does anything else.

vLLM calls each entry point of `vllm.general_plugins` in all of its processes, in its first one
before any model is loaded. It is where a mistake can be told early, and it changes nothing.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys

from tenuto_vllm.config import ConfigError, read_settings

RUST = "VLLM_USE_RUST_FRONTEND"
_PACKAGE = "tenuto_vllm."


def check() -> None:
    """Say what keeps the extension from working; vLLM calls it.

    | the server | what happens |
    |---|---|
    | has `VLLM_USE_RUST_FRONTEND=1` | one warning: no middleware of Python's runs there |
    | is started with something of ours, and a setting cannot be used | it ends with a sentence |
    | else | nothing |

    Raises:
        SystemExit: of the second row.
    """
    # Its children are started with the same environment and arguments.
    if multiprocessing.parent_process() is not None:
        return
    if os.environ.get(RUST, "").strip() not in {"", "0"}:
        logging.getLogger("tenuto_vllm").warning(
            "%s is set: vLLM's Rust front end runs no Python middleware, so tenuto places no "
            "request. Unset it, or let a router in front hash on X-Session-ID.",
            RUST,
        )
    if any(_PACKAGE in word for word in sys.argv[1:]):
        try:
            read_settings(os.environ)
        except ConfigError as error:
            raise SystemExit(f"tenuto: {error}") from None
