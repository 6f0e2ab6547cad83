"""What is learnt of waits, for each tenant by itself, so that none teaches another's."""

from __future__ import annotations

from collections import OrderedDict

from tenuto_vllm.engine.lease import Lease
from tenuto_vllm.retention.waits import MOST_LEASE_S, Expectation, Waits

# Of so many tenants something is remembered.
_TENANTS = 64


class Waiting:
    """Waits of a bounded number of tenants.

    Args:
        sessions: of how many of each tenant something is remembered.
    """

    def __init__(self, sessions: int) -> None:
        self._sessions = sessions
        self._of: OrderedDict[str, Waits] = OrderedDict()

    def learn(self, lease: Lease, waited_s: float) -> None:
        """Take in how long a session was away."""
        self._waits(lease).learn(lease.session, lease.wait, max(0.0, waited_s), lease.told_s)

    def expect(self, lease: Lease, ttl_s: float | None) -> Expectation:
        """Return what is expected of a session's wait, and how long a lease lasts that it asks for.

        Nobody holds a place for ever by saying so.
        """
        expected = self._waits(lease).expect(lease.session, lease.wait, lease.told_s)
        if ttl_s is None:
            return expected
        return expected._replace(lasts_s=min(float(ttl_s), MOST_LEASE_S))

    def forget(self, lease: Lease) -> None:
        """Forget a session."""
        self._waits(lease).forget(lease.session)

    def _waits(self, lease: Lease) -> Waits:
        waits = self._of.get(lease.tenant)
        if waits is None:
            waits = self._of[lease.tenant] = Waits(self._sessions)
            if len(self._of) > _TENANTS:
                self._of.popitem(last=False)
        else:
            self._of.move_to_end(lease.tenant)
        return waits
