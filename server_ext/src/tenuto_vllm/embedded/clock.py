"""Time as an argument: the real clock, and one that jumps from event to event."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import Protocol

# Turns of the event loop that a woken task and those it wakes in turn are given before
# virtual time moves on. The engine's longest chain of wake-ups is far shorter.
_SETTLE_TURNS = 32


class Clock(Protocol):
    """Where the engine gets time from."""

    def now(self) -> float:
        """Return seconds since a fixed, unspecified point."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return `seconds` later; at once, after other tasks ran, if not positive."""
        ...


class RealClock:
    """The event loop's monotonic clock."""

    def now(self) -> float:
        """Return the running loop's time in seconds."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Sleep on the running loop."""
        await asyncio.sleep(max(seconds, 0.0))


class VirtualClock:
    """A clock that stands still while anything runs and jumps when all tasks wait.

    Sleepers wake in the order of their deadlines, equal ones in the order in which they
    fell asleep, so a program whose tasks wait for nothing but this clock and each other
    runs the same way each time, in no time. Sockets are outside of it: time does not wait
    for a peer.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._ticking = False

    def now(self) -> float:
        """Return virtual seconds since this clock was made."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Wait until virtual time is `seconds` further."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        deadline_s = self._now + max(seconds, 0.0)
        heapq.heappush(self._sleepers, (deadline_s, next(self._order), future))
        if not self._ticking:
            self._ticking = True
            loop.call_soon(self._tick, loop, _SETTLE_TURNS)
        await future

    def _tick(self, loop: asyncio.AbstractEventLoop, turns: int) -> None:
        # Chained callbacks rather than a task: nothing is left to cancel when a loop closes.
        if turns:
            loop.call_soon(self._tick, loop, turns - 1)
            return
        while self._sleepers:
            deadline_s, _, future = heapq.heappop(self._sleepers)
            if future.done():
                continue
            self._now = max(self._now, deadline_s)
            future.set_result(None)
            loop.call_soon(self._tick, loop, _SETTLE_TURNS)
            return
        self._ticking = False
