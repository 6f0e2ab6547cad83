"""One HTTP try of a model call, with as much of its answer as is kept."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tenuto.redirects import Sent

Sink = Callable[["Tried"], object]

# Of a longer answer the middle is let go: what counts its tokens stands at its end, and when
# it began is in its first pieces.
_MAX_ANSWER_BYTES = 8 << 20
_KEPT_AT_START_BYTES = 2 << 20
_KEPT_AT_END = 64
# One clock for a process, which no adjustment of the wall clock turns back.
_EPOCH_S = time.time() - time.monotonic()


def now_s() -> float:
    """Return seconds since 1970."""
    return _EPOCH_S + time.monotonic()


class Tried:
    """One HTTP try; complete when a sink is given it.

    Attributes:
        sent: what it was marked with, None outside of every run.
        request: the HTTP request as it was sent.
        start_s: when it was sent, seconds since 1970.
        parent_turn: the last turn of the session's parent, when this is the session's first.
        status: of the answer, None when there was none.
        response: the HTTP answer's head, None when there was none.
        content: of an answer that came whole, decoded.
        chunks: of one that was streamed, as (when it came, bytes as they came); of a long one
            the last.
        start_chunks: the first of one of which the middle was let go; else empty.
        is_whole: a streamed answer was read to its end.
        answer_bytes: how many came, as they came.
        end_s: when the last of the answer came.
        error: kind of the failure, None while there is none.
    """

    __slots__ = (
        "_sinks",
        "answer_bytes",
        "chunks",
        "content",
        "end_s",
        "error",
        "is_streamed",
        "is_whole",
        "parent_turn",
        "request",
        "response",
        "sent",
        "start_chunks",
        "start_s",
        "status",
    )

    def __init__(self, request: Any, sent: Sent | None, sinks: Sequence[Sink] = ()) -> None:
        self.request = request
        self.sent = sent
        self.parent_turn: int | None = None
        self.status: int | None = None
        self.response: Any = None
        self.content: bytes = b""
        self.chunks: deque[tuple[float, bytes]] = deque()
        self.start_chunks: tuple[tuple[float, bytes], ...] = ()
        self.is_streamed = False
        self.is_whole = False
        self.end_s: float | None = None
        self.error: str | None = None
        self.answer_bytes = 0
        # Taken by who ends it first: the iterating thread, a closing one or the collector.
        self._sinks = [sinks]
        self.start_s = now_s()

    def take(self, chunk: bytes) -> None:
        """Keep a piece of the answer."""
        self.end_s = now_s()
        self.answer_bytes += len(chunk)
        if self.answer_bytes > _MAX_ANSWER_BYTES and self.chunks.maxlen is None:
            self._let_go()
        self.chunks.append((self.end_s, chunk))

    def end(self, error: str | None = None) -> None:
        """Tell the sinks, once."""
        try:
            told = self._sinks.pop()
        except IndexError:
            return
        if error is not None:
            self.error = error
        if self.end_s is None:
            self.end_s = now_s()
        for sink in told:
            with contextlib.suppress(Exception):
                sink(self)

    def _let_go(self) -> None:
        first: list[tuple[float, bytes]] = []
        room = _KEPT_AT_START_BYTES
        while self.chunks and room > 0:
            came_s, chunk = self.chunks.popleft()
            first.append((came_s, chunk[:room]))
            room -= len(chunk)
        self.start_chunks = tuple(first)
        self.chunks = deque(self.chunks, _KEPT_AT_END)
