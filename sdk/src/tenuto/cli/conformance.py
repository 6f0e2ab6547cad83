"""`tenuto conformance`: run an agent against the recording server and print the report."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tenuto.conformance import Report, Request, run
from tenuto.conformance.table import table
from tenuto.errors import ConfigError

_JUDGED = frozenset({"pass", "fail", "not seen", "not expressible"})
_FAILED = 1
_UNUSABLE = 2
_OUTPUT_LINES = 40
_SECRET = frozenset({b"authorization", b"x-api-key", b"api-key", b"cookie", b"proxy-authorization"})


def main(argv: Sequence[str] | None = None) -> int:
    """Run the check.

    Returns:
        0 when nothing is broken, 1 when something is (with `--strict`, or was not seen),
        2 when the command called no model.
    """
    options = _parser().parse_args(argv)
    if options.command is None:
        raise ConfigError('give the agent to run: --command "python my_agent.py"')
    report = run(
        options.command,
        timeout_s=options.timeout,
        dialects=_split(options.dialect),
        only=_split(options.only),
        env=dict(_pair(one) for one in options.env),
        name=options.name,
        without=_split(options.without),
        twice=options.twice,
        say=lambda line: print(line, file=sys.stderr, flush=True),
        keep=lambda requests: _keep(options.keep, requests),
    )
    _show_output(report)
    if options.json is not None:
        options.json.write_text(report.as_json(), encoding="utf-8")
    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns
    print(table(report, width=width, colour=is_terminal and "NO_COLOR" not in os.environ))
    if not report.runs[0].calls:
        print(
            "tenuto conformance: the command called no model at the server, whose URL it was "
            "given in OPENAI_BASE_URL",
            file=sys.stderr,
        )
        return _UNUSABLE
    if not any(result.status in _JUDGED for result in report):
        print("tenuto conformance: requests tell nothing of what is in --only", file=sys.stderr)
        return _UNUSABLE
    return _FAILED if report.failed or (options.strict and report.not_seen) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tenuto conformance", description=__doc__)
    add = parser.add_argument
    add("--command", metavar="CMD", help='the agent, such as "python my_agent.py" (no shell)')
    add("--timeout", type=float, default=60.0, metavar="S", help="seconds a run (default 60)")
    add("--json", type=Path, metavar="FILE", help="write the report as JSON")
    add("--dialect", default="", metavar="NAME,…", help="how to read the requests (default: found)")
    add("--only", default="", metavar="ID,…", help="check these requirements alone")
    add("--env", action="append", default=[], metavar="KEY=VALUE", help="set for the agent")
    add("--name", default="ticket-4711", help="what the agent may name its run; also {name} in CMD")
    add(
        "--without",
        default="",
        metavar="TROUBLE,…",
        help="500, 429, drop, stall, redirect, garbled",
    )
    add("--keep", type=Path, metavar="FILE", help="write the requests as JSON lines, without keys")
    add("--strict", action="store_true", help="what was not seen is a failure too")
    times = parser.add_mutually_exclusive_group()
    add = times.add_argument
    how_often = "run the agent {} (default: twice when it takes at most 20 s)"
    add("--twice", action="store_const", dest="twice", const=True, help=how_often.format("twice"))
    add("--once", action="store_const", dest="twice", const=False, help=how_often.format("once"))
    return parser


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ConfigError(f"--env takes KEY=VALUE, got {text!r}")
    return key, value


def _show_output(report: Report) -> None:
    """Show what a command printed that did not end well."""
    for ran in report.runs[:1]:
        if ran.exit_status == 0:
            continue
        lines = ran.output.splitlines()[-_OUTPUT_LINES:]
        print(f"--- the agent's output ({ran.ending})", *lines, "---", sep="\n", file=sys.stderr)


def _keep(path: Path | None, requests: Sequence[Request]) -> None:
    if path is None:
        return
    with path.open("w", encoding="utf-8") as file:
        for one in requests:
            headers = [
                (name.decode("latin-1"), "…" if name in _SECRET else value.decode("latin-1"))
                for name, value in one.headers
            ]
            line = {
                "number": one.number,
                "origin": one.origin,
                "connection": one.connection,
                "at_s": round(one.at_s, 4),
                "method": one.method,
                "path": one.path,
                "headers": headers,
                "body": one.body,
                "outcome": one.outcome,
                "status": one.status,
            }
            file.write(json.dumps(line) + "\n")
