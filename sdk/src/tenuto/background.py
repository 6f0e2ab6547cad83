"""Work that no caller waits for: one daemon thread, started when there is some.

Best effort: what comes while too much waits is not taken, errors are passed over, and a
process that ends waits a fraction of a second for what is left.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

MAX_WAITING = 8192
_BATCH_S = 0.05
_EXIT_S = 0.3

_log = logging.getLogger("tenuto")
Work = tuple[Callable[..., object], tuple[Any, ...]]


class Background:
    """Runs what it is given in the order given, a batch at a time.

    `after_batch` is called when a batch is done, such as to send what it has gathered.
    """

    def __init__(self, after_batch: Callable[[], None]) -> None:
        self._after_batch = after_batch
        self._forget()
        # Threads do not survive a fork, and the work of the parent is the parent's.
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.flush, _EXIT_S)

    def _forget(self) -> None:
        # The one queue that the garbage collector may put into in the midst of a put.
        self._waiting: SimpleQueue[Work] = SimpleQueue()
        self._starting = threading.RLock()
        self._thread: threading.Thread | None = None

    def put(self, work: Callable[..., object], *args: Any) -> bool:
        """Have `work(*args)` called soon, in the background thread; return whether it will be."""
        if self._waiting.qsize() >= MAX_WAITING:
            return False
        self._waiting.put((work, args))
        if self._thread is None:
            self._start()
        return True

    def flush(self, timeout_s: float = 1.0) -> bool:
        """Wait until all that was given is done; return whether it is."""
        if self._thread is None:
            return True
        done = threading.Event()
        self._waiting.put((_mark_end, (done,)))
        return done.wait(timeout_s)

    def _start(self) -> None:
        with self._starting:
            if self._thread is not None:
                return
            thread = threading.Thread(
                target=self._run, args=(self._waiting,), name="tenuto", daemon=True
            )
            # An interpreter that is shutting down starts no threads.
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def _run(self, waiting: SimpleQueue[Work]) -> None:
        while True:
            # In a call of its own: what it holds is not kept until there is more to do.
            self._work_off(waiting)

    def _work_off(self, waiting: SimpleQueue[Work]) -> None:
        first = waiting.get()
        # What comes within the next moment goes into the same batch, and no more: under load
        # there is always more.
        time.sleep(0 if first[0] is _mark_end else _BATCH_S)
        batch = [first, *(waiting.get() for _ in range(waiting.qsize()))]
        for work, args in batch:
            if work is not _mark_end:
                _safely(work, *args)
        _safely(self._after_batch)
        for work, args in batch:
            if work is _mark_end:
                args[0].set()


def _mark_end(_: threading.Event) -> None:
    """Stand for the end of what was given; `_run` looks for it."""


def _safely(work: Callable[..., object], *args: Any) -> None:
    try:
        work(*args)
    except Exception:
        # A handler or filter of the program's may raise too.
        with contextlib.suppress(Exception):
            _log.debug("tenuto's background work failed; it is passed over", exc_info=True)
