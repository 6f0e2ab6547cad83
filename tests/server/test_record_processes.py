"""What is in a trace file stays good whatever ends or forks the process that writes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tenuto.trace import Problem, read
from tests.loopback import Recorder, eventually, serving

PROGRAM = """
import os, sys, openai, tenuto
url, path, how = sys.argv[1:]
recorder = tenuto.record(path)
client = tenuto.wrap(openai.OpenAI(base_url=url + "/v1", api_key="k"))
def call(n):
    client.chat.completions.create(model="m", messages=[{"role": "user", "content": f"{n} " * 999}])
with tenuto.run("NAME"):
    call(0)
    if how == "fork" and (child := os.fork()) == 0:
        with tenuto.run("child"):
            call(1)
        recorder.close()
        os._exit(0)
    if how == "fork":
        os.waitpid(child, 0)
    n = 1
    while how == "forever" or (how == "thrice" and n < 3):
        call(n)
        n += 1
"""


def start(url: str, path: Path, how: str, name: str = "") -> subprocess.Popen[str]:
    env = {**os.environ, "TENUTO_KEY": "for the test"}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("NAME", name or how), url, str(path), how],
        env=env,
        text=True,
        stderr=subprocess.PIPE,
    )


def test_a_program_that_only_ends_has_all_its_calls_in_the_file(tmp_path: Path) -> None:
    with serving(Recorder()) as url, start(url, tmp_path / "run.jsonl", "end") as program:
        assert program.communicate(timeout=60)[1] == ""
    (trace,) = read(tmp_path / "run.jsonl")
    assert trace.requests == 1


def test_a_program_that_is_killed_leaves_whole_lines_but_the_last(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with serving(Recorder()) as url, start(url, path, "forever") as program:
        assert eventually(lambda: path.exists() and path.read_bytes().count(b"\n") > 20, 30)
        program.send_signal(signal.SIGKILL)
        program.communicate(timeout=60)
        written = path.read_bytes()
        path.write_bytes(written[:-100])
        told: list[Problem] = []
        (trace,) = read(path, on_problem=told.append)
        assert [problem.is_note for problem in told] == [True]
        assert trace.requests == written.count(b"\n") - 1
        # Another process that goes on in the file does not spoil its first line.
        with start(url, path, "end") as another:
            another.communicate(timeout=60)
    told.clear()
    traces = list(read(path, on_problem=told.append))
    assert [problem.line for problem in told] == [written.count(b"\n")]
    assert [one.requests for one in traces] == [trace.requests, 1]


def test_a_named_run_that_is_started_again_goes_on_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with serving(Recorder()) as url:
        for how in ("end", "end", "thrice"):
            with start(url, path, how, "ticket-4711") as program:
                assert program.communicate(timeout=60)[1] == ""
    told: list[Problem] = []
    (trace,) = read(path, on_problem=told.append)
    assert told == []
    (session,) = trace.sessions
    starts = [turn.start_s for turn in session.turns]
    assert len(starts) == 1 + 1 + 3
    assert starts == sorted(starts)
    assert trace.requests == path.read_bytes().count(b"\n")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_writes_a_file_of_its_own(tmp_path: Path) -> None:
    with serving(Recorder()) as url, start(url, tmp_path / "run.jsonl", "fork") as program:
        program.communicate(timeout=60)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 2
    assert names[1].startswith("run.p")
    first, second = (next(read(tmp_path / name)) for name in (names[0], names[1]))
    assert (first.requests, second.requests) == (1, 1)
    assert first.id != second.id


def test_importing_tenuto_loads_nothing_for_recording() -> None:
    program = (
        "import sys, tenuto; print([n for n in sys.modules"
        " if n.startswith(('tenuto.trace', 'tenuto.recording'))]); tenuto.record"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout == "[]\n"
