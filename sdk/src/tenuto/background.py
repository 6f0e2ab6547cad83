"""Work that no caller waits for: one daemon thread, started when there is some.

Best effort: of more work than is done in time the oldest is dropped, errors are passed over,
and a process that ends waits a fraction of a second for what is left.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

MAX_WAITING = 8192
_BATCH_S = 0.05
_EXIT_S = 0.3

_log = logging.getLogger("tenuto")
Work = tuple[Callable[..., None], tuple[Any, ...]]


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
        self._waiting: deque[Work] = deque(maxlen=MAX_WAITING)
        self._wake = threading.Event()
        self._done = threading.Condition()
        self._given = 0
        self._finished = 0
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, work: Callable[..., None], *args: Any) -> None:
        """Have `work(*args)` called soon, in the background thread."""
        self._waiting.append((work, args))
        self._given += 1
        if not self._wake.is_set():
            self._wake.set()
        if self._thread is None:
            self._start()

    def flush(self, timeout_s: float = 1.0) -> bool:
        """Wait until all that was given is done; return whether it is."""
        target = self._given
        if self._thread is None or self._finished >= target:
            return True
        with self._done:
            return self._done.wait_for(lambda: self._finished >= target, timeout_s)

    def _start(self) -> None:
        with self._starting:
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name="tenuto", daemon=True)
            # An interpreter that is shutting down starts no threads.
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        while self._wake.wait():
            # What comes within the next moment goes into the same batch.
            threading.Event().wait(_BATCH_S)
            self._wake.clear()
            given = self._given
            while self._waiting:
                work, args = self._waiting.popleft()
                _safely(work, *args)
            _safely(self._after_batch)
            with self._done:
                self._finished = given
                self._done.notify_all()


def _safely(work: Callable[..., None], *args: Any) -> None:
    try:
        work(*args)
    except Exception:
        # A handler or filter of the program's may raise too.
        with contextlib.suppress(Exception):
            _log.debug("tenuto's background work failed; it is passed over", exc_info=True)
