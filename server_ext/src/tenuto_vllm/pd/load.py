"""What one decode server has of one call."""

from __future__ import annotations

import asyncio
import time

from tenuto_vllm.pd.fleet import Server


class Load:
    """What one decode server has of one call, from the request to the end of the answer.

    Args:
        server: that decodes.
        new_tokens: of the prompt that it computes; 0 where it fetches them.
        work_s: seconds that this takes.
        is_stream: the first token is seen. Else the prompt is taken to be computed when it
            should be, since the first byte comes with the last token.
    """

    def __init__(self, server: Server, new_tokens: int, work_s: float, *, is_stream: bool) -> None:
        self._server = server
        self._new = new_tokens
        self._work_s = work_s
        self._is_stream = is_stream
        self._begun_s = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._is_first = True

    def __enter__(self) -> Load:
        if self._new:
            self._server.begin(self._new, self._work_s, self._begun_s)
        if not self._is_stream:
            wait_s = self._server.node(self._begun_s).queued_s if self._new else 0.0
            self._timer = asyncio.get_running_loop().call_later(wait_s, self.first_token)
        return self

    def first_token(self) -> None:
        """Take the prefill off what waits; called again, it does nothing."""
        if self._is_first:
            self._is_first = False
            now_s = time.monotonic()
            took_s = self._server.took_s(self._begun_s, now_s) if self._is_stream else None
            self._end(now_s)
            self._server.running += 1
            self._server.computed(self._new, took_s)

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._is_first:
            self._is_first = False
            self._end(time.monotonic())
        else:
            self._server.running -= 1

    def _end(self, now_s: float) -> None:
        if self._new:
            self._server.end(self._new, self._work_s, now_s)
