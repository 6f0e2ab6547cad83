"""The processes of a server that runs in a process group of its own."""

from __future__ import annotations

import os
from pathlib import Path


def alive_in_group(group: int) -> list[int]:
    """Return the pids of a process group, without the dead that nobody has reaped."""
    alive: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(entry.name)) != group:
                continue
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, ProcessLookupError):
            continue
        if state != "Z":
            alive.append(int(entry.name))
    return alive
