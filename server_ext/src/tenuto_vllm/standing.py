"""Which ranks are drained and which have lost their caches, for all API processes of a server.

Each request may be heard by another API process, so an order that one of them takes has to
reach the others. They share a small file in a folder of the user's own; where that cannot be
had, each process knows what it has heard itself. The file is never needed to serve.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

LOOK_EVERY_S = 0.25
# A server that is gone leaves its file behind.
_OLD_S = 7 * 86_400.0


class Standing:
    """What was ordered of the ranks, and the epoch of each rank's cache.

    Args:
        name: the server's instance; empty for one that nobody shares.
        folder: of the shared file; the user's own in the folder for temporary files if None.
    """

    def __init__(self, name: str = "", folder: Path | None = None) -> None:
        self._file = _file(name, folder) if name else None
        self._drained: frozenset[int] = frozenset()
        self._epochs: dict[int, int] = {}
        self._seen: tuple[int, int] | None = None
        self._untold: frozenset[int] = frozenset()
        self._looked_s = float("-inf")

    def look(self, now_s: float) -> frozenset[int]:
        """Read what other processes have ordered, a few times a second at most.

        Returns:
            The ranks that have lost their caches since the last look.
        """
        if self._file is None or now_s - self._looked_s < LOOK_EVERY_S:
            return frozenset()
        self._looked_s = now_s
        lost, self._untold = self._read() | self._untold, frozenset()
        return lost

    def drained(self) -> frozenset[int]:
        """Return the ranks that are to be left."""
        return self._drained

    def drain(self, rank: int) -> None:
        """Send nothing more to a rank; what runs there goes on."""
        self._change(lambda: self._set(self._drained | {rank}, self._epochs))

    def restore(self, rank: int) -> None:
        """Take a rank back; sessions that have left it stay where they are."""
        self._change(lambda: self._set(self._drained - {rank}, self._epochs))

    def epoch(self, rank: int) -> int:
        """Return how often a rank's cache has been lost since the server started."""
        return self._epochs.get(rank, 0)

    def lost(self, ranks: Iterable[int]) -> None:
        """Note that the caches of these ranks are empty: no token of before calls them warm."""
        gone = list(ranks)
        self._change(
            lambda: self._set(
                self._drained, self._epochs | {rank: self.epoch(rank) + 1 for rank in gone}
            )
        )

    def _set(self, drained: frozenset[int], epochs: dict[int, int]) -> None:
        self._drained, self._epochs = drained, epochs

    def _change(self, change: Callable[[], None]) -> None:
        file = self._file
        if file is None:
            change()
            return
        try:
            with _alone(file):
                self._untold |= self._read()
                change()
                told = {"drained": sorted(self._drained), "epochs": self._epochs}
                whole = file.with_suffix(f".{os.getpid()}")
                whole.write_text(json.dumps(told))
                whole.replace(file)
        except OSError:
            self._file = None
            change()

    def _read(self) -> frozenset[int]:
        before = self._epochs
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, KeyError):
            assert self._file is not None
            about = self._file.stat()
            seen = (about.st_mtime_ns, about.st_ino)
            if seen != self._seen:
                told: dict[str, Any] = json.loads(self._file.read_text())
                self._drained = frozenset(int(rank) for rank in told["drained"])
                self._epochs = {int(rank): int(epoch) for rank, epoch in told["epochs"].items()}
                self._seen = seen
        return frozenset(
            rank for rank, epoch in self._epochs.items() if epoch != before.get(rank, 0)
        )


def _file(name: str, folder: Path | None) -> Path | None:
    """Return the shared file, in a folder that nobody else can write to, or None."""
    try:
        if folder is None:
            folder = Path(tempfile.gettempdir(), f"tenuto-vllm-{os.getuid()}")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.lstat()
        if about.st_uid != os.getuid() or about.st_mode & 0o022 or folder.is_symlink():
            return None
    except (OSError, AttributeError):
        return None
    return folder / f"{name}.json"


@contextlib.contextmanager
def _alone(file: Path) -> Generator[None]:
    """Keep other processes from changing the file meanwhile, and clear old ones away."""
    with file.with_suffix(".lock").open("w") as lock:
        with contextlib.suppress(ImportError):
            fcntl: Any = importlib.import_module("fcntl")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for other in file.parent.iterdir():
            with contextlib.suppress(OSError):
                if other.stem != file.stem and time.time() - other.stat().st_mtime > _OLD_S:
                    other.unlink()
        yield
