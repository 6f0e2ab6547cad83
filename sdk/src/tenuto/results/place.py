"""What is at the place of a result file: nothing, a result file, a trace, something else."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from tenuto.trace import read

_MOST_HEADER_BYTES = 1 << 26


def is_trace(path: Path) -> bool:
    """Return whether a file has a trace of any known format."""
    try:
        return next(iter(read(path)), None) is not None
    except (OSError, ValueError):
        return False


def refuse_existing(paths: Iterable[Path], *, ways_out: str, may_go: bool) -> None:
    """Refuse to write where something is.

    Args:
        paths: files that are to be written.
        ways_out: what else can be done where a result file is there.
        may_go: a result file that is there may be replaced; anything else never.

    Raises:
        ValueError: something is there.
    """
    there = [path for path in paths if path.exists()]
    for path in there:
        if not _is_result_file(path):
            what = "is a trace" if is_trace(path) else "is there and no result file"
            raise ValueError(f"{path} {what}; name another")
    if there and not may_go:
        more = f" and {len(there) - 1} more are" if len(there) > 1 else " is"
        raise ValueError(f"{there[0]}{more} there: {ways_out}, or name another")


def _is_result_file(path: Path) -> bool:
    """Return whether a file begins as one; one that is empty ended before its header."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            line = file.readline(_MOST_HEADER_BYTES)
        if not line:
            return True
        given: object = json.loads(line)
    except EOFError:
        return True
    except (OSError, ValueError):
        return False
    return isinstance(given, dict) and cast("dict[str, Any]", given).get("kind") == "header"
