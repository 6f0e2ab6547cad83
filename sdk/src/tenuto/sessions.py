"""What a process remembers of a session between its calls: its turns and its home.

The store is bounded, so that a server that opens a run per user forgets the session
entered longest ago, unless a scope of it is still held. A forgotten session starts again at
turn 0 under the same id.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any
from weakref import WeakValueDictionary

MAX_SESSIONS = 16_384
_KEPT_TURNS = 8
_KEPT_TOKENS = 8

# Scheme, and host with the port where it is not the scheme's own.
Origin = tuple[str, bytes]


def origin_of(url: Any) -> Origin:
    """Return the origin of an httpx or httpx2 URL."""
    return url.scheme, url.netloc


class SessionState:
    """The mutable half of a session. Thread-safe; holds no loop-bound object."""

    __slots__ = ("__weakref__", "_lock", "_next", "_tokens", "_turns")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0
        # The last few prompts, each with its turn's index and how often it was tried.
        self._turns: dict[int, list[int]] = {}
        self._tokens: OrderedDict[Origin, str] = OrderedDict()

    def next_attempt(self, prompt: int | None) -> tuple[int, int]:
        """Count one HTTP try of a prompt.

        A prompt seen among the last few is that turn tried again (openai's retries and any
        outer layer, also with other calls of the session between); any other opens the
        next turn.

        Args:
            prompt: its fingerprint, None when it has none: then it is new.

        Returns:
            (turn index, attempt), both from 0.
        """
        with self._lock:
            turn = self._turns.get(prompt) if prompt is not None else None
            if turn is None:
                turn = [self._next, 0]
                self._next += 1
                if prompt is not None:
                    self._turns[prompt] = turn
                    if len(self._turns) > _KEPT_TURNS:
                        del self._turns[next(iter(self._turns))]
            turn[1] += 1
            return turn[0], turn[1] - 1

    def token(self, origin: Origin) -> str | None:
        """Return the affinity token that `origin` gave last."""
        return self._tokens.get(origin)

    def keep_token(self, origin: Origin, token: str) -> None:
        """Remember the token of an answer, for requests to `origin` only."""
        with self._lock:
            self._tokens[origin] = token
            self._tokens.move_to_end(origin)
            if len(self._tokens) > _KEPT_TOKENS:
                self._tokens.popitem(last=False)


class SessionStore:
    """Sessions by id, the one entered longest ago first out."""

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
            self._recent[session_id] = state
            self._recent.move_to_end(session_id)
            if len(self._recent) > self._limit:
                self._recent.popitem(last=False)
            return state
