"""Lines of trace files for tests, and what is read from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tenuto.trace import Problem, Trace, read


def call(
    session: str | None, turn: int, start_s: float, end_s: float, **more: Any
) -> dict[str, Any]:
    said = {"kind": "call", "v": 1, "run_id": "r", "session_id": session, "turn": turn}
    size = {"block_size": 4, "blocks": [[turn * 10, 2]], "input_tokens": 9, "output_tokens": 1}
    return {**said, **size, "start_s": start_s, "end_s": end_s, **more}


def file_of(path: Path, *rows: dict[str, Any] | bytes) -> Path:
    file = path / "run.jsonl"
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in rows]
    file.write_bytes(b"".join(lines))
    return file


def read_all(file: Path) -> tuple[list[Trace], list[Problem]]:
    problems: list[Problem] = []
    return list(read(file, on_problem=problems.append)), problems
