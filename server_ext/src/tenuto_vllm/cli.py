"""`tenuto-vllm`: what the extension makes of its settings."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from tenuto_vllm.config import TABLE, ConfigError, Settings, read_settings, variable


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Args:
        arguments: without the program's name; those of the process if None.
    """
    parser = argparse.ArgumentParser(
        prog="tenuto-vllm", description="Session-aware placement for vLLM: its operation."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    about = "print the settings in effect and where each comes from"
    settings = commands.add_parser("settings", help=about, description=f"{about.capitalize()}.")
    settings.set_defaults(run=_settings)
    given = parser.parse_args(arguments)
    status: int = given.run()
    return status


def _settings() -> int:
    try:
        settings, sources = read_settings(os.environ)
    except ConfigError as error:
        print(f"tenuto: {error}", file=sys.stderr)
        return 2
    rows = [(variable(key), _text(key, settings), sources[key]) for key in TABLE]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    try:
        for name, value, source in rows:
            print(f"{name:{widths[0]}}  {value:{widths[1]}}  {source}", flush=True)
    except BrokenPipeError:
        # Whoever reads has read enough; nothing is left for the interpreter to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _text(key: str, settings: Settings) -> str:
    value = getattr(settings, key)
    if TABLE[key].is_secret:
        return "(hidden)" if value else ""
    return str(int(value)) if isinstance(value, bool) else str(value or "")


if __name__ == "__main__":
    sys.exit(main())
