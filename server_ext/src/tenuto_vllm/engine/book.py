"""The leases in force: which have run out, whose blocks go first, and whether they are too many."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator

from tenuto_vllm.engine.chain import Chain
from tenuto_vllm.engine.lease import Lease
from tenuto_vllm.retention.order import key

_LEAST_SWEEP = 64
# So many sessions are sorted anew once in a while only, others whenever they are asked for.
_MANY, _FRESH_S = 256, 1.0


class Book:
    """Leases of one engine by session.

    Args:
        most: blocks that may be leased in all.
        tenant_most: the same for each tenant.
    """

    def __init__(self, most: int, tenant_most: int) -> None:
        self._most = most
        self._tenant_most = tenant_most
        self._held: dict[str, Lease] = {}
        # Ends of the past too: what counts is what the lease says when its time has come.
        self._ends: list[tuple[float, str]] = []
        # Of many: what is left of the order of a moment ago, the last to go first.
        self._sorted: list[Lease] = []
        self._sorted_s = 0.0

    def __len__(self) -> int:
        """Return how many leases are in force."""
        return len(self._held)

    def enter(self, lease: Lease) -> None:
        """Take in a lease, or that it ends at another time."""
        self._held[lease.session] = lease
        heapq.heappush(self._ends, (lease.until_s, lease.session))
        if len(self._ends) > _LEAST_SWEEP + 2 * len(self._held):
            self._ends = [(one.until_s, one.session) for one in self._held.values()]
            heapq.heapify(self._ends)

    def strike(self, lease: Lease) -> None:
        """Take a lease out."""
        self._held.pop(lease.session, None)

    def due(self, now_s: float) -> Iterator[Lease]:
        """Yield the leases that have run out, but for those of sessions in use."""
        while self._ends and self._ends[0][0] <= now_s:
            lease = self._held.get(heapq.heappop(self._ends)[1])
            if lease is None or lease.active or not lease.is_held:
                continue
            if lease.until_s <= now_s:
                yield lease

    @property
    def is_due_s(self) -> float:
        """When `due` may have something to yield."""
        return self._ends[0][0] if self._ends else float("inf")

    def victims(self, now_s: float) -> Iterator[Lease]:
        """Yield the leases of sessions that wait; the first is to give way first.

        Tenants with more than their part of what is leased come before the others. Of many
        sessions the order of up to a second ago is taken, as far as it reaches.
        """
        is_stale = not 0.0 <= now_s - self._sorted_s < _FRESH_S
        if is_stale or len(self._sorted) < _MANY:
            self._sorted, self._sorted_s = self._order(now_s), now_s
        while self._sorted:
            lease = self._sorted[-1]
            if lease.is_held and not lease.active:
                yield lease
            # Whoever asks for the next has had all of this one.
            if self._sorted and self._sorted[-1] is lease:
                self._sorted.pop()
        self._sorted = []

    def waiting(self, now_s: float) -> Iterator[Lease]:
        """Yield the same in the order of this moment."""
        self._sorted = []
        return self.victims(now_s)

    def _order(self, now_s: float) -> list[Lease]:
        """Return the leases of sessions that wait; the last is to give way first."""
        # The queue may have taken a whole chain by itself.
        self._held = {name: lease for name, lease in self._held.items() if lease.is_held}
        waiting = [lease for lease in self._held.values() if not lease.active]
        sizes: Counter[str] = Counter()
        for lease in waiting:
            sizes[lease.tenant] += lease.chain.blocks
        part = sizes.total() / max(1, len(sizes))
        has_much = {tenant for tenant, size in sizes.items() if size > part}
        waiting.sort(
            key=lambda lease: (lease.tenant not in has_much, *key(lease.facts(), now_s)),
            reverse=True,
        )
        return waiting

    def uncounted(self) -> list[Chain]:
        """Return the chains that may hold much less than is counted."""
        return [one.chain for one in self._held.values() if one.chain.is_uncounted]

    def surplus(self) -> tuple[int, Counter[str]]:
        """Return how many blocks are leased too many in all, and of each tenant that has any.

        What a session in use had is in its request's hands, or about to be.
        """
        sizes: Counter[str] = Counter()
        for lease in self._held.values():
            if not lease.active:
                sizes[lease.tenant] += lease.chain.blocks
        above = max(0, sizes.total() - self._most)
        return above, Counter({one: size - self._tenant_most for one, size in sizes.items()})
