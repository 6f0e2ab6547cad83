"""Writing a program's model calls to a file while it runs, on a thread of its own.

What a call costs its caller is one append to a queue. The file holds whole lines, but for
the last one of a process that was killed, which readers drop.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self
from weakref import WeakSet

from tenuto import process, tries
from tenuto.errors import ConfigError
from tenuto.identity import ID_BYTES
from tenuto.install_key import install_key
from tenuto.recording.body import Asked
from tenuto.recording.conversations import Conversations
from tenuto.recording.events import Place, Rules, asked_of, body_of, event_of, place_of
from tenuto.recording.file import LineFile
from tenuto.recording.heard import Heard, heard_of
from tenuto.recording.text import Redact, written
from tenuto.trace import CallEvent
from tenuto.tried import Tried

_MAX_QUEUED_BYTES = 64 << 20
_MAX_QUEUED = 100_000
_MAX_SESSIONS = 16_384
_CLOSE_WAIT_S = 10.0

# A try and its size, one who waits until the queue is written so far, or the end.
_Waiting = tuple[Tried, int] | threading.Event | None

Placed = Callable[[Tried, Any, Asked, Heard], Place]

_RECORDERS: WeakSet[Recorder] = WeakSet()


class Recorder:
    """Records the model calls of every wrapped client of the process, until it is closed.

    Made by `tenuto.record`. As a context manager it is closed at the end of the block.
    """

    def __init__(
        self,
        path: Path,
        rules: Rules,
        max_bytes: int,
        files: int,
        placed: Placed | None = None,
    ) -> None:
        # With `placed`, which runs on the recorder's thread, only what `put` is given is
        # recorded.
        self._placed = placed
        self._file = LineFile(path, max_bytes, files)
        self._path, self._limits = path, (max_bytes, files)
        self._rules = rules
        self._is_closed = False
        self._answered: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._conversations = Conversations()
        self._begin()
        _RECORDERS.add(self)
        if placed is None:
            tries.add(self.put)
        atexit.register(self.close)

    def _begin(self) -> None:
        self._queue: queue.SimpleQueue[_Waiting] = queue.SimpleQueue()
        # The collector may end a stream, and so come here, while this thread holds it.
        self._lock = threading.RLock()
        self._queued_bytes = 0
        self._dropped = 0
        self._thread: threading.Thread | None = None

    @property
    def path(self) -> Path:
        """The file that is written; in a forked child, the child's own."""
        return self._file.path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def flush(self, timeout_s: float = _CLOSE_WAIT_S) -> bool:
        """Wait until every call that has ended is in the file; return whether it is."""
        if self._thread is None:
            return True
        reached = threading.Event()
        self._queue.put(reached)
        return reached.wait(timeout_s)

    def close(self, timeout_s: float = _CLOSE_WAIT_S) -> bool:
        """Record no more, and write what is left; return whether all is written.

        Closing again does nothing.
        """
        if self._is_closed:
            return True
        self._is_closed = True
        tries.remove(self.put)
        # An interpreter that is shutting down may refuse either.
        with contextlib.suppress(Exception):
            atexit.unregister(self.close)
        if self._thread is None:
            return True
        self._queue.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def put(self, tried: Tried) -> None:
        """Take a try that is complete; never waits."""
        if self._is_closed:
            return
        size = tried.answer_bytes + int(tried.request.headers.get("content-length", 0))
        with self._lock:
            if self._queued_bytes + size > _MAX_QUEUED_BYTES or self._queue.qsize() >= _MAX_QUEUED:
                self._dropped += 1
                return
            self._queued_bytes += size
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, args=(self._queue,), name="tenuto-record", daemon=True
                )
                self._thread.start()
        self._queue.put((tried, size))

    def _work(self, waiting: queue.SimpleQueue[_Waiting]) -> None:
        while True:
            one = waiting.get()
            if one is None:
                self._file.close()
                return
            if isinstance(one, threading.Event):
                one.set()
                continue
            tried, size = one
            try:
                self._write(tried)
            except BaseException as error:
                # Code of the program's may run here, and exit; the next call is written still.
                with self._lock:
                    self._dropped += 1
                process.warn_once(
                    "record", f"a model call could not be recorded ({type(error).__name__})"
                )
            with self._lock:
                self._queued_bytes = self._queued_bytes - size if waiting.qsize() else 0

    def _write(self, tried: Tried) -> None:
        body = body_of(tried.request)
        asked = self._conversations.whole(asked_of(tried.request, body))
        heard = heard_of(tried)
        self._conversations.note(asked, heard.said)
        if self._placed is None:
            place = place_of(tried, self._rules.run_id)
        else:
            place = self._placed(tried, body, asked, heard)
        key = (place.run_id, place.session_id or "")
        answered_s = self._answered.get(key) if place.session_id is not None else None
        event = event_of(tried, asked, place, self._rules, answered_s, heard=heard)
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        if dropped:
            extra = {**(event.extra or {}), "dropped": dropped}
            event = event.model_copy(update={"extra": extra})
        try:
            self._file.append(written(event))
        except Exception:
            with self._lock:
                self._dropped += dropped
            raise
        self._note(key, event)

    def _note(self, key: tuple[str, str], event: CallEvent) -> None:
        if event.error is not None or event.end_s is None:
            return
        self._answered[key] = event.end_s
        self._answered.move_to_end(key)
        if len(self._answered) > _MAX_SESSIONS:
            self._answered.popitem(last=False)

    def after_fork(self) -> None:
        """Go on in a forked child: in a file of its own, without the parent's thread."""
        if self._is_closed:
            return
        self._file.close()
        name = f"{self._path.stem}.p{os.getpid()}{self._path.suffix}"
        self._file = LineFile(self._path.with_name(name), *self._limits)
        self._answered.clear()
        self._begin()


def _after_fork() -> None:
    for recorder in list(_RECORDERS):
        recorder.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def record(
    path: str | os.PathLike[str],
    *,
    text: bool = False,
    redact: Redact | None = None,
    max_bytes: int = 1 << 30,
    files: int = 8,
) -> Recorder:
    """Record the model calls of all wrapped clients of this process, from here on.

    Args:
        path: of the trace file, which is appended to; its folder must exist. A forked
            child writes beside it, to `NAME.pPID.jsonl`.
        text: whether prompts and answers are written. Else only hashes, sizes, tokens,
            times and names are.
        redact: called with each string of prompts and answers, names of fields and numbers
            included, returns what is written. When it raises, that call is written without text.
        max_bytes: a file that has grown to this becomes `NAME.full-000001.jsonl`, …,
            the highest the latest, and the next begins.
        files: how many full files are kept.

    Returns:
        The recorder, which can be closed; else it records until the process ends.

    Raises:
        ConfigError: the file cannot be written, or an argument is outside its limits.
    """
    if redact is not None and not text:
        raise ConfigError("redact is for text: give text=True as well")
    if redact is not None and not callable(redact):
        raise ConfigError(f"redact is a function of one string, got {type(redact).__name__}")
    for name, number in (("max_bytes", max_bytes), ("files", files)):
        if type(number) is not int or number < 1:
            raise ConfigError(f"{name} is an integer >= 1, got {number!r}")
    rules = Rules(secrets.token_hex(ID_BYTES), install_key(), text, redact)
    return opened(Path(path), rules, max_bytes, files)


def opened(
    path: Path, rules: Rules, max_bytes: int, files: int, placed: Placed | None = None
) -> Recorder:
    """Return a recorder whose file can be written.

    Raises:
        ConfigError: it cannot be.
    """
    file = path.absolute()
    try:
        trial = LineFile(file, max_bytes, files)
        trial.open()
        trial.close()
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error
    return Recorder(file, rules, max_bytes, files, placed)
