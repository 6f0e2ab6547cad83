"""Calls that all attempts were spent on, so that an outer retry layer adds no more than its own.

An outer layer (tenacity, a framework's, a graph's node policy) repeats the whole call. Tried
in full each time, 3 outer tries of 3 attempts are 9 requests to a server that is already in
trouble; here they are 3 + 1 + 1.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from typing import Any

from tenuto.context import current_session

WINDOW_S = 60.0
_MAX_CALLS = 256


def call_key(url: str, *bodies: Any) -> int | None:
    """Return a number that repeats of a call share, None for a body that is not JSON.

    Process-local. Calls of different sessions differ; outside of every session, those of
    different threads.
    """
    session = current_session()
    caller = session.session_id if session is not None else threading.get_ident()
    try:
        return hash((caller, url, json.dumps(bodies, default=str)))
    except (TypeError, ValueError, RecursionError):
        return None


class GivenUp:
    """The calls given up in the last minute. Bounded, thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._until_s: OrderedDict[int, float] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._until_s)

    def add(self, key: int, now_s: float) -> None:
        """Remember a call that was given up."""
        with self._lock:
            self._until_s[key] = now_s + WINDOW_S
            self._until_s.move_to_end(key)
            if len(self._until_s) > _MAX_CALLS:
                self._until_s.popitem(last=False)

    def has(self, key: int, now_s: float) -> bool:
        """Tell whether a call was given up not long ago."""
        with self._lock:
            return self._until_s.get(key, now_s) > now_s

    def discard(self, key: int) -> None:
        """Forget a call, which has succeeded."""
        with self._lock:
            self._until_s.pop(key, None)
