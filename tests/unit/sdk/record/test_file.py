"""A file that several processes write and put aside loses no line, and nobody else's file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tenuto.recording.file import LineFile, numbered

LINES = 500
PROGRAM = """
import sys, pathlib
from tenuto.recording.file import LineFile
path, process, lines = sys.argv[1:]
file = LineFile(pathlib.Path(path), 1, 100_000)
for n in range(int(lines)):
    file.append(b"%s-%d %s" % (process.encode(), n, b"x" * 60))
"""


def test_processes_that_share_a_path_lose_no_line_and_none_fails(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    running = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, str(path), str(n), str(LINES)])
        for n in range(4)
    ]
    assert [program.wait(120) for program in running] == [0] * 4
    written = [line for one in tmp_path.iterdir() for line in one.read_bytes().split(b"\n") if line]
    assert len(written) == len(set(written)) == 4 * LINES
    assert len(numbered(path)) > 20


def test_only_files_that_were_put_aside_here_are_counted_and_deleted(tmp_path: Path) -> None:
    theirs = ["run.20251130.jsonl", "run.1.jsonl", "run.full-1.jsonl", "run.full-000001.json"]
    for name in theirs:
        (tmp_path / name).write_text("kept", "utf-8")
    file = LineFile(tmp_path / "run.jsonl", 1, 2)
    for n in range(5):
        file.append(b"%d" % n)
    kept = [f"run.full-00000{n}.jsonl" for n in (4, 5)]
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted([*theirs, *kept])


def test_a_file_that_cannot_be_put_aside_goes_on_and_no_line_counts_as_lost(tmp_path: Path) -> None:
    # A folder cannot be deleted as a file is.
    (tmp_path / "run.full-000001.jsonl").mkdir()
    file = LineFile(tmp_path / "run.jsonl", 1, 1)
    for n in range(3):
        file.append(b"%d" % n)
    assert (tmp_path / "run.full-000004.jsonl").read_bytes() == b"2\n"
