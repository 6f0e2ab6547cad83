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
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

LOOK_EVERY_S = 0.25
# Who holds it writes a line; one that was stopped meanwhile must stop nobody else.
_LOCK_TRIES = 50
_LOCK_TRY_S = 0.001
# A server that is gone leaves its file behind.
_OLD_S = 7 * 86_400.0


class _Orders(NamedTuple):
    drained: frozenset[int] = frozenset()
    epochs: Mapping[int, int] = {}


_Change = Callable[[_Orders], _Orders]


class Standing:
    """What was ordered of the ranks, and the epoch of each rank's cache.

    Args:
        name: the server's instance; empty for one that nobody shares.
        folder: in which the folder of the shared file is made; that of temporary files if None.
    """

    def __init__(self, name: str = "", folder: Path | None = None) -> None:
        self._file = _file(name, folder) if name else None
        self._shared = _Orders()
        self._orders = _Orders()
        self._unsaved: list[_Change] = []
        self._untold: set[int] = set()
        self._seen: tuple[int, int] | None = None
        self._looked_s = float("-inf")

    @property
    def is_shared(self) -> bool:
        """Whether other processes hear of its orders."""
        return self._file is not None and not self._unsaved

    def look(self, now_s: float) -> Iterable[int]:
        """Read what other processes have ordered, a few times a second at most.

        Returns:
            The ranks that have lost their caches since the last look.
        """
        if self._file is None or now_s - self._looked_s < LOOK_EVERY_S:
            return ()
        self._looked_s = now_s
        if self._unsaved:
            self._save(self._file)
        else:
            with contextlib.suppress(OSError):
                about = self._file.stat()
                seen = (about.st_mtime_ns, about.st_ino)
                if seen != self._seen:
                    self._rebase(self._load(self._file))
                    self._seen = seen
        lost, self._untold = self._untold, set()
        return lost

    def drained(self) -> frozenset[int]:
        """Return the ranks that are to be left."""
        return self._orders.drained

    def drain(self, rank: int, ranks: int) -> bool:
        """Send nothing more to a rank; what runs there goes on.

        Args:
            rank: to be left.
            ranks: how many there are; the last open one is not drained.

        Returns:
            Whether it is drained.
        """

        def change(orders: _Orders) -> _Orders:
            drained = orders.drained | {rank}
            return orders if drained.issuperset(range(ranks)) else orders._replace(drained=drained)

        self._change(change)
        return rank in self._orders.drained

    def restore(self, rank: int) -> None:
        """Take a rank back; sessions that have left it stay where they are."""
        self._change(lambda orders: orders._replace(drained=orders.drained - {rank}))

    def epoch(self, rank: int) -> int:
        """Return how often a rank's cache has been lost since the server started."""
        return self._orders.epochs.get(rank, 0)

    def lost(self, ranks: Iterable[int], since: Mapping[int, int] | None = None) -> None:
        """Note that the caches of these ranks are empty: no token of before calls them warm.

        Args:
            ranks: whose caches.
            since: the epochs in which it happened, where every process sees it by itself: one
                that another process has ended already is not ended again.
        """
        gone = list(ranks)

        def change(orders: _Orders) -> _Orders:
            epochs = {rank: orders.epochs.get(rank, 0) for rank in gone}
            ended = {r: e + 1 for r, e in epochs.items() if since is None or e == since[r]}
            return orders._replace(epochs={**orders.epochs, **ended})

        if gone:
            self._change(change)

    def removed(self, ranks: Iterable[int]) -> None:
        """Forget what was ordered of ranks that are gone: who has their numbers later is new."""
        gone = frozenset(ranks)
        self.lost(gone, {rank: self.epoch(rank) for rank in gone})
        if not gone.isdisjoint(self._orders.drained):
            self._change(lambda orders: orders._replace(drained=orders.drained - gone))

    def _change(self, change: _Change) -> None:
        self._orders = change(self._orders)
        if self._file is not None:
            self._unsaved.append(change)
            self._save(self._file)

    def _save(self, file: Path) -> None:
        # What cannot be saved holds here, and is tried again at the next look.
        with contextlib.suppress(OSError), _alone(file):
            self._rebase(self._load(file))
            orders = self._orders
            told = {"drained": sorted(orders.drained), "epochs": orders.epochs}
            whole = file.with_suffix(f".{os.getpid()}")
            whole.write_text(json.dumps(told))
            whole.replace(file)
            self._shared = orders
            self._unsaved.clear()

    def _rebase(self, shared: _Orders) -> None:
        """Take what the processes share, with what this one has not saved on top."""
        before = self._shared.epochs
        self._untold |= {rank for rank, n in shared.epochs.items() if n != before.get(rank, 0)}
        self._shared = self._orders = shared
        for change in self._unsaved:
            self._orders = change(self._orders)

    def _load(self, file: Path) -> _Orders:
        """Return what the file says; what was known before where it says nothing."""
        try:
            told: Any = json.loads(file.read_text())
            epochs = {int(rank): int(epoch) for rank, epoch in told["epochs"].items()}
            return _Orders(frozenset(int(rank) for rank in told["drained"]), epochs)
        except (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
            return self._shared
        except RecursionError:
            return self._shared


def _file(name: str, folder: Path | None) -> Path | None:
    """Return the shared file, in a folder that nobody else can write to, or None."""
    try:
        own = Path(folder or tempfile.gettempdir(), f"tenuto-vllm-{os.getuid()}")
        _make(own)
        about = own.lstat()
        if about.st_uid != os.getuid() or about.st_mode & 0o022 or not own.is_dir():
            return None
    except (OSError, AttributeError):
        return None
    return None if own.is_symlink() else own / f"{name}.json"


def _make(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextlib.contextmanager
def _alone(file: Path) -> Generator[None]:
    """Keep other processes from changing the file meanwhile, and clear old ones away."""
    _make(file.parent)
    with file.with_suffix(".lock").open("w") as lock:
        with contextlib.suppress(ImportError):
            _take(lock, importlib.import_module("fcntl"))
        for other in file.parent.iterdir():
            with contextlib.suppress(OSError):
                if other.stem != file.stem and time.time() - other.stat().st_mtime > _OLD_S:
                    other.unlink()
        yield


def _take(lock: IO[str], fcntl: Any) -> None:
    for _ in range(_LOCK_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_LOCK_TRY_S)
    raise BlockingIOError
