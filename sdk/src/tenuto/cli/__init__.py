"""The `tenuto` command: a table of subcommands, each loaded when it is called."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from tenuto.errors import ConfigError

USAGE_ERROR = 2
# What a shell says of a program that SIGINT or SIGPIPE ended.
_INTERRUPTED = 130
_READER_LEFT = 141


class _Command(NamedTuple):
    about: str
    module: str


# A module's `main` takes the arguments after the subcommand and returns the exit status.
_COMMANDS = {
    "conformance": _Command("check what an agent program sends", "tenuto.cli.conformance"),
    "trace": _Command("look at, convert and record traces", "tenuto.cli.trace"),
    "replay": _Command("play traces against servers", "tenuto.cli.replay"),
    "simulate": _Command("play traces on a virtual clock, in many set-ups", "tenuto.cli.simulate"),
    "fit": _Command("fit the simulator's latency to measured turns", "tenuto.cli.fit"),
    "compare": _Command("say what moved between runs of one trace", "tenuto.cli.compare"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    given = list(sys.argv[1:] if argv is None else argv)
    name = given[0] if given else ""
    if name in {"--version", "-V"}:
        print(f"tenuto {importlib.metadata.version('tenuto')}")
        return 0
    if name in {"", "--help", "-h"}:
        print(_help(), file=sys.stdout if name else sys.stderr)
        return 0 if name else USAGE_ERROR
    if name not in _COMMANDS:
        print(f"tenuto: no command {name!r}\n\n{_help()}", file=sys.stderr)
        return USAGE_ERROR
    try:
        return _run(_COMMANDS[name].module, given[1:])
    except ConfigError as error:
        print(f"tenuto {name}: {error}", file=sys.stderr)
        return USAGE_ERROR
    except ImportError as error:
        cure = "" if "pip install" in str(error) else "; pip install 'tenuto[tools]'"
        print(f"tenuto {name}: {error}{cure}", file=sys.stderr)
        return 1


def _run(module: str, arguments: list[str]) -> int:
    try:
        status: int = importlib.import_module(module).main(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read has seen enough; the interpreter must not try again as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _READER_LEFT
    return status


def _help() -> str:
    width = max(map(len, _COMMANDS))
    rows = (f"  {name.ljust(width)}  {one.about}" for name, one in _COMMANDS.items())
    usage = "usage: tenuto COMMAND [--help] ...\n       tenuto --version"
    return "\n".join([usage, "", "commands:", *rows])
