"""What a process knows of the servers it calls: how they are told, and what they are owed."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from typing import NamedTuple

from tenuto.dialects import Dialect
from tenuto.news import Server
from tenuto.sessions import Origin

_KEPT_SERVERS = 256
_KEPT_ENDED = 64


# An origin and a number for the credential that it is called with, None without one.
Account = tuple[Origin, int | None]


class Known(NamedTuple):
    """How a server is told of sessions, and whether it has answered in protocol 1.

    `server` is None where the client reaches it in a way of its own, which news does not know.
    """

    server: Server | None
    dialect: Dialect
    speaks_protocol: bool


class Servers:
    """Bounded; the server called longest ago is forgotten first. Thread-safe."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start anew, as a forked child does."""
        self._lock = threading.RLock()
        self._known: OrderedDict[Origin, Known] = OrderedDict()
        self._ended: dict[Account, deque[str]] = {}

    def learn(self, origin: Origin, known: Known) -> None:
        """Remember what an answer of `origin` shows."""
        with self._lock:
            self._known[origin] = known
            self._known.move_to_end(origin)
            if len(self._known) > _KEPT_SERVERS:
                gone, _ = self._known.popitem(last=False)
                for account in [one for one in self._ended if one[0] == gone]:
                    del self._ended[account]

    def get(self, origin: Origin) -> Known | None:
        """Return what is known of `origin`, None when it has shown nothing."""
        return self._known.get(origin)

    def speaks_protocol(self, origin: Origin) -> bool:
        """Tell whether `origin` has answered in protocol 1."""
        known = self._known.get(origin)
        return known is not None and known.speaks_protocol

    def owe(self, account: Account, session_id: str) -> None:
        """Remember to say with a later request that a session has ended."""
        with self._lock:
            self._ended.setdefault(account, deque(maxlen=_KEPT_ENDED)).append(session_id)

    def take_ended(self, account: Account, limit: int) -> tuple[str, ...]:
        """Return at most `limit` ended sessions that a request of the account is to name."""
        if not self._ended:
            return ()
        with self._lock:
            owed = self._ended.get(account)
            if owed is None:
                return ()
            taken = tuple(owed.popleft() for _ in range(min(limit, len(owed))))
            if not owed:
                del self._ended[account]
            return taken

    def goes_on(self, session_id: str) -> None:
        """Owe it to nobody to say that a session has ended: it has not."""
        with self._lock:
            for owed in self._ended.values():
                if session_id in owed:
                    owed.remove(session_id)
