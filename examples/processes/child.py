"""A child process that goes on in its parent's session: the carrier is in its environment."""

from __future__ import annotations

import subprocess
import sys

import tenuto
from examples.processes.calls import ask, server


def main() -> None:
    command = [sys.executable, "-m", "examples.processes.child", "tool"]
    with server(), tenuto.run("ticket-4711") as run:
        with run.agent("planner"):
            ask("plan")
        with run.agent("tool"):
            subprocess.run(command, env=tenuto.environment(), check=True)


def tool() -> None:
    ask("use a tool")
    with tenuto.run("a task of the tool's own"):
        ask("its own")


if __name__ == "__main__":
    tool() if sys.argv[1:] == ["tool"] else main()
