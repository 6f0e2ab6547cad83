"""What commands have started ends with them, however they end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tenuto.trace import Session, Trace, Turn, write
from tests.loopback import DEFAULT_SIGNALS, eventually
from tests.unit.replay.programs import turn

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

COMMAND = [*DEFAULT_SIGNALS, sys.executable, "-m", "tenuto.cli"]
ENDINGS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL]


def children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(one) for task in tasks for one in (task / "children").read_text().split()]
    except OSError:
        return []


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def ended(process: subprocess.Popen[bytes], number: int, started: list[int]) -> bytes:
    """Send a signal; return what the command said, when it and all that it started has ended."""
    process.send_signal(number)
    told = process.communicate(timeout=20)[1]
    assert eventually(lambda: not any(map(is_running, started)), timeout_s=10)
    return told


@pytest.mark.parametrize("number", ENDINGS)
def test_the_embedded_engine_ends_with_the_replay_that_started_it(
    number: int, tmp_path: Path
) -> None:
    path, out = tmp_path / "t.jsonl", tmp_path / "a.jsonl"
    slow = tuple(turn(*range(n + 1), at=60.0 * n) for n in range(3))
    write(path, [Trace("slow", 8, (Session("main", "main", slow),))])
    with subprocess.Popen(
        [*COMMAND, "replay", str(path), "--target", "embedded", "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        # A header and the first turn; the second is due in a minute.
        assert eventually(lambda: out.exists() and out.read_bytes().count(b"\n") == 2, timeout_s=30)
        engines = children(process.pid)
        assert len(engines) == 1
        told = ended(process, number, engines)
    assert process.returncode == (-9 if number == signal.SIGKILL else 130), told
    assert b"Traceback" not in told


@pytest.mark.parametrize("number", ENDINGS)
def test_workers_end_with_the_simulation_that_started_them(number: int, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    turns = tuple(Turn(((0, n + 1),), 16 * n + 16, 5, float(n), n + 0.5) for n in range(100))
    write(path, [Trace(f"t{n}", 16, (Session("main", "main", turns),)) for n in range(100)])
    ranks = [str(1 + n) for n in range(40)]
    with subprocess.Popen(
        [*COMMAND, "simulate", str(path), "--jobs", "2", "--ranks", *ranks],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert eventually(lambda: len(children(process.pid)) == 2, timeout_s=30)
        told = ended(process, number, children(process.pid))
    assert process.returncode == (-9 if number == signal.SIGKILL else 130), told
    assert b"Traceback" not in told
