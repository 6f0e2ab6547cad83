"""What a file is, found by what is in it and not by its name."""

from __future__ import annotations

import gzip
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tenuto.trace import TraceError, digest, read
from tests.unit.trace.events import call, read_all
from tests.unit.trace.test_hostile_rows import GOOD

ROWS = {name: [json.dumps(row) + "\n" for row in rows] for name, rows in GOOD.items()}
LONG = json.dumps({"type": "file-history-snapshot", "snapshot": "x" * (100 << 10)}) + "\n"


def calls_in(file: Path) -> int:
    return sum(trace.requests for trace in read_all(file)[0])


@pytest.mark.parametrize("before", ["garbage\n" * 20, LONG, '{"x":1}\n', "\n\n"])
@pytest.mark.parametrize("name", ROWS)
def test_what_stands_before_the_first_good_line_hides_no_file(
    tmp_path: Path, name: str, before: str
) -> None:
    (tmp_path / "good.jsonl").write_text("".join(ROWS[name]))
    (tmp_path / "r.jsonl").write_text(before + "".join(ROWS[name]))
    (trace, *_), (good, *_) = read_all(tmp_path / "r.jsonl")[0], read(tmp_path / "good.jsonl")
    assert (trace.source, digest(trace)) == (good.source, digest(good))


@pytest.mark.parametrize("name", ROWS)
def test_a_small_compressed_file_is_read_up_to_its_fault(tmp_path: Path, name: str) -> None:
    file = tmp_path / "r.jsonl.gz"
    file.write_bytes(gzip.compress("".join(ROWS[name]).encode()))
    whole = calls_in(file)
    # Its check sum is at the end.
    file.write_bytes(file.read_bytes()[:-6])
    assert calls_in(file) == whole
    assert "cannot be read further" in read_all(file)[1][-1].what
    file.write_bytes(gzip.compress("".join(ROWS[name]).rstrip().encode()) + b"garbage")
    assert calls_in(file) == whole
    assert "cannot be read further" in read_all(file)[1][-1].what


def test_a_compressed_file_of_which_nothing_is_there_says_so(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl.gz").write_bytes(gzip.compress(b"x")[:11])
    with pytest.raises(TraceError, match=r"r\.jsonl\.gz:1: the file cannot be read \(Compressed"):
        read(tmp_path / "r.jsonl.gz")


@pytest.mark.parametrize("name", ["weka", "otel"])
@pytest.mark.parametrize("file_name", ["r.json", "r.jsonl", "r.txt"])
def test_documents_are_found_by_content(tmp_path: Path, name: str, file_name: str) -> None:
    file = tmp_path / file_name
    rows = [*GOOD[name], *({**row, "id": "b", "trace_id": "b"} for row in GOOD[name])]
    lines = [json.dumps(row) for row in rows]
    file.write_text("\n".join(lines))
    assert (calls_in(file), read_all(file)[1]) == (4, [])
    whole: Any = rows[0] if name == "weka" else {"spans": rows}
    file.write_text(json.dumps(whole, indent=1))
    assert (calls_in(file), read_all(file)[1]) == (2 if name == "weka" else 4, [])
    # A line that is bad, and a document that is cut off, are one fault each.
    file.write_text("\n".join(["{bad", *lines]))
    assert (calls_in(file), len(read_all(file)[1])) == (4, 1)
    file.write_text(json.dumps(whole, indent=1)[:-20])
    assert (calls_in(file), [one.is_note for one in read_all(file)[1]]) == (0, [False])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_read_once_or_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(TraceError, match="can be read only once"):
        read(pipe)
    text = "".join(json.dumps(call("a", n, n * 2.0, n * 2.0 + 1)) + "\n" for n in range(5000))
    writer = threading.Thread(target=pipe.write_text, args=(text,), daemon=True)
    writer.start()
    assert sum(trace.requests for trace in read(pipe, format="tenuto")) == 5000
    writer.join(10)
