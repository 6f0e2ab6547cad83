"""Signals that end a command, taken as Ctrl-C is: what was started is stopped, then it ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

_NAMES = ("SIGTERM", "SIGHUP")


def ending_signals() -> list[signal.Signals]:
    """Return those of this system that nobody has told to be ignored, as `nohup` does."""
    known = [signal.Signals[name] for name in _NAMES if name in signal.Signals.__members__]
    return [number for number in known if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def ending_as_interrupt() -> Generator[None]:
    """Raise KeyboardInterrupt where one of them arrives inside of the `with` block."""
    # Python takes signals in the main thread alone.
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, _raise) for number in ending_signals() if is_main}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
