"""The sessions that an engine knows, by when they were last asked for something."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator

from tenuto_vllm.engine.lease import Lease
from tenuto_vllm.retention.hint import Hint

# A bound is enough, and it is asked for in each turn.
_MOST_LOOKED_AT = 256


class Sessions:
    """A bounded number of sessions.

    Args:
        most: how many; those in use may be more.
        states: see `Lease`.
    """

    def __init__(self, most: int, states: int) -> None:
        self._most = most
        self._states = states
        self._of: OrderedDict[str, Lease] = OrderedDict()
        # When a run was first seen.
        self._runs: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._of)

    def __iter__(self) -> Iterator[Lease]:
        """Yield all of them; they may be forgotten meanwhile."""
        return iter(list(self._of.values()))

    def get(self, session: str) -> Lease | None:
        """Return a session, or None for one that is not known."""
        return self._of.get(session)

    def open(self, hint: Hint, now_s: float) -> Lease:
        """Return a request's session, made if it is not known."""
        lease = self._of.get(hint.session)
        if lease is None:
            born_s = self._born(hint.run, now_s)
            lease = self._of[hint.session] = Lease(hint.session, born_s, self._states)
        return lease

    def touch(self, lease: Lease) -> None:
        """Note that a session was just asked for something."""
        self._of.move_to_end(lease.session)

    def forget(self, lease: Lease) -> None:
        """Take a session out."""
        self._of.pop(lease.session, None)

    def surplus(self) -> Lease | None:
        """Return the session to be forgotten, while there are too many."""
        if len(self._of) <= self._most:
            return None
        return next((lease for lease in self._of.values() if not lease.active), None)

    def kept_by_lru(self, lease: Lease, handed_out: int, blocks: int) -> int:
        """Return how many of a session's last blocks plain LRU would still have, at most.

        That evicts a block once so many others as the pool holds were used since. At least those
        were that the sessions have that came since, and at least those that were handed out.

        Args:
            lease: of the session.
            handed_out: blocks since its turn ended.
            blocks: of the pool.
        """
        since = 0
        for other in itertools.islice(reversed(self._of.values()), _MOST_LOOKED_AT):
            if other is lease:
                break
            since += other.size
        return min(lease.size, max(0, blocks - max(since, handed_out)))

    def _born(self, run: str, now_s: float) -> float:
        """Return when a run was first seen; a session of no run is one of its own."""
        if not run:
            return now_s
        born_s = self._runs.setdefault(run, now_s)
        self._runs.move_to_end(run)
        if len(self._runs) > self._most:
            self._runs.popitem(last=False)
        return born_s
