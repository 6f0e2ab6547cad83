"""A workflow whose process dies and is replayed: its ids are derived, its carrier is journaled.

Each step's result holds the carrier for the next one. A replay reads the results of the
steps that are done, so that the session goes on at the turn, and at the home, where it was.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tenuto
from examples.processes.calls import ask, server

STEPS = ("plan", "search", "write", "check")


class Journal:
    """What is done stays done: a step that has a result is not run again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}

    def step(self, name: str, work: Callable[..., Any], *args: Any) -> Any:
        """Return the step's result, from the journal or by `work`."""
        if name not in self._done:
            self._done[name] = work(*args)
            self._path.write_text(json.dumps(self._done), encoding="utf-8")
        return self._done[name]


def begin(workflow_id: str) -> dict[str, str]:
    with tenuto.run(workflow_id) as run, run.agent("worker"):
        return tenuto.inject()


def take_turn(carrier: dict[str, str], text: str) -> dict[str, str]:
    with tenuto.extract(carrier):
        ask(text)
        return tenuto.inject()


def workflow(workflow_id: str, journal: Journal, *, dies_after: str = "") -> None:
    carrier = journal.step("begin", begin, workflow_id)
    for name in STEPS:
        carrier = journal.step(name, take_turn, carrier, name)
        if name == dies_after:
            sys.exit("the process dies")


def main() -> None:
    with server(), tempfile.TemporaryDirectory() as folder:
        journal = str(Path(folder, "journal.json"))
        for dies_after in ("search", ""):
            command = [sys.executable, "-m", "examples.processes.durable", journal, dies_after]
            subprocess.run(command, check=False)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        workflow("order-4711", Journal(Path(sys.argv[1])), dies_after=sys.argv[2])
    else:
        main()
