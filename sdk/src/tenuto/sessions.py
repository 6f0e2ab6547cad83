"""What a process remembers of a session between its calls: its turns and its home.

The store is bounded, so that a server that opens a run per user forgets the session
entered longest ago, unless a scope of it is still held. A forgotten session starts again at
turn 0 under the same id. A live one takes less than 2 KB, whatever its prompts: of a prompt
only checkpoints are kept (`tenuto.prompt`).
"""

from __future__ import annotations

import itertools
import os
import threading
from array import array
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from tenuto.prompt import NO_OUTLINE, Outline, Prompt, thinned
from tenuto.turn import Next

MAX_SESSIONS = 16_384
_KEPT_TURNS = 8
_KEPT_TAILS = 2
_KEPT_TOKENS = 8

# Scheme, and host with the port where it is not the scheme's own.
Origin = tuple[str, bytes]


def origin_of(url: Any) -> Origin:
    """Return the origin of an httpx or httpx2 URL."""
    return url.scheme, url.netloc


class Usage(NamedTuple):
    """What an answer said of its tokens, and the size of the body that it answered."""

    prompt_tokens: int
    output_tokens: int
    body_bytes: int


class Wait(NamedTuple):
    """What an answer was followed by: the tools it called, and when it came, monotonic seconds."""

    after: Next
    tools: tuple[str, ...]
    since_s: float


class Opened(NamedTuple):
    """One HTTP try of a turn.

    Attributes:
        n: the turn's index.
        attempt: the try's index.
        is_first: the process has seen no call of the session before this turn.
        before: the last turn's prompt.
        usage: of the last answered turn.
        waited: what the last turn's answer was followed by, None when that is not known.
        child_ran: a child session has called since the last turn.
    """

    n: int
    attempt: int
    is_first: bool = False
    before: Outline = NO_OUTLINE
    usage: Usage | None = None
    waited: Wait | None = None
    child_ran: bool = False


class _Locks:
    """A few for all sessions, which would take more memory with one each.

    They may be taken again by who holds them: the garbage collector runs anywhere, and may end
    a stream or leave a scope there.
    """

    all = itertools.cycle([threading.RLock() for _ in range(64)])

    @classmethod
    def renew(cls) -> None:
        cls.all = itertools.cycle([threading.RLock() for _ in range(64)])


class SessionState:
    """The mutable half of a session. Thread-safe; holds no loop-bound object."""

    __slots__ = (
        "__weakref__",
        "_answered",
        "_before",
        "_ended",
        "_entered",
        "_is_begun",
        "_keys",
        "_lock",
        "_tails",
        "_tokens",
        "_tries",
        "_usage",
        "_visited",
        "_waiting",
        "child_ran",
        "credential",
        "home_url",
        "next_turn",
    )

    def __init__(self) -> None:
        self._lock = next(_Locks.all)
        self.next_turn = 0
        # The last few prompts, and of each its turn's index and further tries in a row.
        self._keys = array("q")
        self._tries = array("I")
        self._before = NO_OUTLINE
        self._tokens: tuple[tuple[Origin, str, str], ...] = ()
        self._visited: tuple[Origin, ...] = ()
        self._usage: Usage | None = None
        self._waiting: Wait | None = None
        self._answered = -1
        # What was said of the last few turns at their first tries holds for the others.
        self._tails: tuple[tuple[int, str], ...] = ()
        # A number for the credential of the last request.
        self.credential: int | None = None
        # The base URL that it lives at, for clients that spread sessions over several.
        self.home_url: str | None = None
        self.child_ran = False
        self._is_begun = False
        self._ended = False
        self._entered = 0

    def enter(self) -> None:
        """Count one entering of a scope of the session."""
        with self._lock:
            self._entered += 1

    def leave(self) -> bool:
        """Count one leaving; return whether no scope of the session is entered any more."""
        with self._lock:
            self._entered -= 1
            return self._entered <= 0

    def open_turn(self, prompt: Prompt | None, key: int | None) -> Opened:
        """Count one HTTP try of a prompt.

        A prompt seen among the last few is that turn tried again (openai's retries and any
        outer layer, also with other calls of the session between); any other opens the
        next turn.

        Args:
            prompt: what was read of the body.
            key: what tells it from others when it cannot be read; None: it is new.
        """
        if prompt is not None:
            key = prompt.key
        with self._lock:
            keys = self._keys
            if key is not None and key in keys:
                at = 2 * keys.index(key)
                self._tries[at + 1] += 1
                return Opened(self._tries[at], self._tries[at + 1])
            n = self.next_turn
            self.next_turn = n + 1
            if key is not None:
                if len(keys) == _KEPT_TURNS:
                    del keys[0], self._tries[:2]
                keys.append(key)
                self._tries.extend((n, 0))
            return self._first_try(n, prompt)

    def _first_try(self, n: int, prompt: Prompt | None) -> Opened:
        opened = Opened(
            n,
            0,
            not self._is_begun,
            self._before,
            self._usage,
            self._waiting,
            self.child_ran,
        )
        self._is_begun = True
        self._before = prompt.outline if prompt is not None else NO_OUTLINE
        self._waiting = None
        self.child_ran = False
        self._ended = False
        return opened

    def thin(self) -> None:
        """Take less memory; for when no one waits."""
        before = self._before
        small = thinned(before)
        with self._lock:
            if self._before is before:
                self._before = small

    def keep_tail(self, n: int, tail: str) -> str:
        """Remember what is said of turn `n`, for its further tries; return it."""
        self._tails = (*self._tails[1 - _KEPT_TAILS :], (n, tail))
        return tail

    def tail(self, n: int) -> str:
        """Return what was said of turn `n` at its first try, "" when it is long ago."""
        return next((tail for known, tail in self._tails if known == n), "")

    def answered(self, n: int, usage: Usage | None, wait: Wait | None) -> None:
        """Note what the answer of turn `n` said; of late answers the latest turn's counts."""
        with self._lock:
            if n < self._answered:
                return
            self._answered = n
            self._usage = usage
            # A turn that was opened since has ended the wait.
            if wait is not None and n == self.next_turn - 1:
                self._waiting = wait

    def renew_lock(self) -> None:
        """Go on in a forked child, where the thread that held the lock is not."""
        self._lock = next(_Locks.all)

    @property
    def is_ended(self) -> bool:
        """Whether the session was said to have finished, and has had no turn since."""
        return self._ended

    def end(self) -> bool:
        """Note that the session has finished; return whether it had turns since the last time."""
        with self._lock:
            ends = self._is_begun and not self._ended
            self._ended = True
            return ends

    def resume_at(self, n: int) -> None:
        """Go on at turn `n` at least: another process has taken those before."""
        with self._lock:
            self.next_turn = max(self.next_turn, n)

    def token(self, origin: Origin, name: str = "") -> str | None:
        """Return what `origin` gave last under the answer header `name`."""
        for known, header, value in self._tokens:
            if known == origin and header == name:
                return value
        return None

    def keep_token(self, origin: Origin, token: str, name: str = "") -> None:
        """Remember a token of an answer, for requests to `origin` only."""
        with self._lock:
            others = [held for held in self._tokens if held[:2] != (origin, name)]
            self._tokens = (*others[1 - _KEPT_TOKENS :], (origin, name, token))

    def visit(self, origin: Origin) -> None:
        """Remember that `origin` is to be told of the session's end, though it gave no token."""
        if origin not in self._visited:
            with self._lock:
                self._visited = (*self._visited[1 - _KEPT_TOKENS :], origin)

    def tokens(self) -> tuple[tuple[Origin, str, str], ...]:
        """Return what origins gave: (origin, answer header, value), oldest first."""
        return self._tokens

    def origins(self) -> tuple[Origin, ...]:
        """Return the origins that are to be told of the session's end."""
        return tuple(dict.fromkeys((*(origin for origin, _, _ in self._tokens), *self._visited)))


class SessionStore:
    """Sessions by id, the one entered longest ago first out."""

    def __init__(self, limit: int = MAX_SESSIONS) -> None:
        self._limit = limit
        self._forget()
        # A lock that another thread holds at a fork stays locked in the child, and the
        # sessions of the parent go on in the parent.
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        _Locks.renew()
        for state in list(self._held.values()):
            state.renew_lock()
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.RLock()
        self._held: WeakValueDictionary[str, SessionState] = WeakValueDictionary()
        self._recent: dict[str, SessionState] = {}

    def __len__(self) -> int:
        return len(self._recent)

    def get(self, session_id: str) -> SessionState:
        """Return the state of a session, new when the process does not know it."""
        with self._lock:
            state = self._held.get(session_id)
            if state is None:
                state = self._held[session_id] = SessionState()
            # The last is at the end, the first to go at the start.
            self._recent.pop(session_id, None)
            self._recent[session_id] = state
            if len(self._recent) > self._limit:
                del self._recent[next(iter(self._recent))]
            return state

    def known(self, session_id: str) -> SessionState | None:
        """Return the state of a session, None when the process does not know it."""
        return self._held.get(session_id)
