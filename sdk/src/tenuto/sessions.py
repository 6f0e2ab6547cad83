"""What a process remembers of a session between its calls: its turns and its home.

The store is bounded, so that a server that opens a run per user forgets the session
used longest ago, unless a scope of it is still held. A forgotten session starts again at
turn 0 under the same id.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from typing import Any
from weakref import WeakValueDictionary

MAX_SESSIONS = 16_384
_KEPT_TURNS = 4
_KEPT_TOKENS = 8

Origin = tuple[str, str, int | None]
_PORTS = {"http": 80, "https": 443}


def origin_of(url: Any) -> Origin:
    """Return (scheme, host, port) of an httpx or httpx2 URL."""
    scheme, port = url.scheme, url.port
    return scheme, url.host, _PORTS.get(scheme) if port is None else port


class OpenTurn:
    """One turn: its index and how often it has been tried, over every retry layer."""

    __slots__ = ("_tries", "n")

    def __init__(self, n: int) -> None:
        self.n = n
        # `next` on a count is one step of C, so threads never share a number.
        self._tries = itertools.count()

    def next_attempt(self) -> int:
        """Count one HTTP try and return its index, from 0."""
        return next(self._tries)


class SessionState:
    """The mutable half of a session. Thread-safe; holds no loop-bound object."""

    __slots__ = ("__weakref__", "_lock", "_next", "_tokens", "_turns")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0
        self._turns: OrderedDict[int, OpenTurn] = OrderedDict()
        self._tokens: OrderedDict[Origin, str] = OrderedDict()

    def open_turn(self, fingerprint: int | None) -> OpenTurn:
        """Return the turn that a prompt belongs to.

        A prompt seen among the last few is that turn again (an outer retry layer, also
        with other calls of the session between); any other opens the next turn.
        """
        with self._lock:
            if fingerprint is not None and fingerprint in self._turns:
                return self._turns[fingerprint]
            turn = OpenTurn(self._next)
            self._next += 1
            if fingerprint is not None:
                self._turns[fingerprint] = turn
                if len(self._turns) > _KEPT_TURNS:
                    self._turns.popitem(last=False)
            return turn

    def token(self, origin: Origin) -> str | None:
        """Return the affinity token that `origin` gave last."""
        return self._tokens.get(origin)

    def keep_token(self, origin: Origin, token: str) -> None:
        """Remember the token of an answer, for requests to `origin` only."""
        if self._tokens.get(origin) == token:
            return
        with self._lock:
            self._tokens[origin] = token
            self._tokens.move_to_end(origin)
            if len(self._tokens) > _KEPT_TOKENS:
                self._tokens.popitem(last=False)


class SessionStore:
    """Sessions by id, the one used longest ago first out."""

    def __init__(self, limit: int = MAX_SESSIONS) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._held: WeakValueDictionary[str, SessionState] = WeakValueDictionary()
        self._recent: OrderedDict[str, SessionState] = OrderedDict()

    def __len__(self) -> int:
        return len(self._recent)

    def get(self, session_id: str) -> SessionState:
        """Return the state of a session, new when the process does not know it."""
        with self._lock:
            state = self._held.get(session_id)
            if state is None:
                state = self._held[session_id] = SessionState()
            self._use(session_id, state)
            return state

    def used(self, session_id: str, state: SessionState) -> None:
        """Note that a session is in use, so that others are forgotten before it."""
        with self._lock:
            self._use(session_id, state)

    def _use(self, session_id: str, state: SessionState) -> None:
        self._recent[session_id] = state
        self._recent.move_to_end(session_id)
        if len(self._recent) > self._limit:
            self._recent.popitem(last=False)
