"""Runs the agent: bounded, with all that it starts, its output kept."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO, NamedTuple

from tenuto.errors import ConfigError

_GRACE_S = 2.0
_KEPT_BYTES = 64 * 1024


class Ended(NamedTuple):
    """How a command ended: its status (None at the time limit), seconds, and its output's end."""

    exit_status: int | None
    wall_s: float
    output: str


def split(command: str | Sequence[str], name: str) -> list[str]:
    """Return a command as arguments, `{name}` in it replaced; there is no shell.

    Raises:
        ConfigError: it is empty, or its quotes do not match.
    """
    try:
        parts = shlex.split(command) if isinstance(command, str) else list(command)
    except ValueError as error:
        raise ConfigError(f"the command {command!r} cannot be split: {error}") from error
    if not parts:
        raise ConfigError('the command is empty; give one such as "python my_agent.py"')
    return [part.replace("{name}", name) for part in parts]


def run_child(arguments: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Ended:
    """Run a command in a process group of its own, which does not outlive the call.

    Args:
        arguments: the command.
        env: variables to set beside those of this process.
        timeout_s: seconds until the group is ended.

    Raises:
        ConfigError: the command cannot be started.
    """
    # A file and not a pipe: what the command leaves running would hold a pipe open.
    with tempfile.TemporaryFile() as output:
        start_s = time.monotonic()
        try:
            process = subprocess.Popen(
                arguments,
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigError(f"the command {arguments[0]!r} cannot be started: {error}") from error
        status: int | None = None
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
        finally:
            _signal(process, signal.SIGKILL)
            process.wait()
        return Ended(status, time.monotonic() - start_s, _tail(output))


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _tail(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _KEPT_BYTES))
    return output.read().decode("utf-8", "replace")
