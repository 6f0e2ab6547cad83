"""What a rank's retention policy is to know of the blocks that a call gives back. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tenuto_vllm.retention import Expectation, Held, Retention, Wait, Waits

if TYPE_CHECKING:
    from tenuto_vllm.embedded.core import Call
    from tenuto_vllm.embedded.pool import Table

# Sessions and runs of a rank that are remembered; those of longest ago go.
_MOST = 4096


class _Away(NamedTuple):
    since_s: float
    wait: Wait
    told_s: float | None


class Returns:
    """Learns how long the sessions of one rank stay away, where its policy wants that.

    Args:
        retention: the policy.
    """

    def __init__(self, retention: Retention) -> None:
        self._retention = retention
        self._waits = Waits(_MOST)
        self._away: OrderedDict[str, _Away] = OrderedDict()
        self._born_s: OrderedDict[str, float] = OrderedDict()

    def began(self, call: Call, now_s: float) -> None:
        """Note that a call has come."""
        if not self._retention.learns_waits or not call.session:
            return
        self._born_s.setdefault(call.run, now_s)
        away = self._away.pop(call.session, None)
        if away is not None:
            self._waits.learn(call.session, away.wait, now_s - away.since_s, away.told_s)
        if len(self._born_s) > _MOST:
            self._born_s.popitem(last=False)

    def ended(self, call: Call, table: Table, now_s: float) -> Sequence[tuple[int, Held]]:
        """Return what is to be known of a call's blocks, from the first on; `Pool.release`."""
        held = Held(
            session=call.session,
            released_s=now_s,
            wait=call.wait,
            is_final=call.is_final,
            expected=self._expected(call, now_s),
            born_s=self._born_s.get(call.run, 0.0),
        )
        if self._retention.is_oracle:
            kept = held
            if call.next_gap_s is not None:
                kept = held._replace(next_s=now_s + call.next_gap_s)
            return (call.next_keeps, kept), (0, held)
        if self._retention.tells_hits_apart:
            return (table.hits, held._replace(was_hit=True)), (0, held)
        return ((0, held),)

    def _expected(self, call: Call, now_s: float) -> Expectation | None:
        if not self._retention.learns_waits or not call.session:
            return None
        if call.is_final:
            self._waits.forget(call.session)
            return None
        told_s = call.gap_s if self._retention.hears_gaps else None
        self._away[call.session] = _Away(now_s, call.wait, told_s)
        if len(self._away) > _MOST:
            self._away.popitem(last=False)
        return self._waits.expect(call.session, call.wait, told_s)
