"""What the engine knows of one session."""

from __future__ import annotations

from collections import deque
from typing import Any

from tenuto_vllm.engine.chain import Chain
from tenuto_vllm.retention.held import Wait
from tenuto_vllm.retention.hint import tenant_of
from tenuto_vllm.retention.order import Leased
from tenuto_vllm.retention.waits import Expectation


class Lease:
    """A session, its free blocks, and the promise to evict them late while `is_held`.

    Args:
        session: its key.
        born_s: when its run was first seen.
        states: how many of its newest checkpoints' blocks stay with it.

    Attributes:
        session: its key, the tenant's tag included.
        tenant: the tag.
        chain: its free blocks.
        active: its requests that wait or run.
        born_s: when its run was first seen.
        ended_s: when its last turn ended; None before the first did.
        wait: what ends the wait since.
        told_s: how long its client expects the wait to last; None where it said nothing.
        expected: of the wait.
        prio: -8..8, higher is evicted later.
        size: blocks that its last turn had.
        first_tokens: that its first turn had.
        has_overlapped: two of its requests were under way at once since it last had none.
        foreign: leading blocks of its last turn, of which some were another session's.
        is_cut: blocks of its chain were handed out since its last turn.
        is_over: its client has said that it has ended.
        is_doubted: its last turn used less than half of what the turn before had.
        returned_s: when its next turn began; None while nothing came since the last.
        was_held: whether it had its lease then.
        handed_out: blocks that the queue had handed out by then.
        lru_kept: blocks that plain LRU would have kept, as its running turn began; None where
            that is not to be counted.
        states: ids of its newest checkpoints.
    """

    __slots__ = (
        *("active", "born_s", "chain", "ended_s", "expected", "first_tokens", "foreign"),
        *("handed_out", "has_overlapped", "is_cut", "is_doubted", "is_over"),
        *("lru_kept", "prio", "returned_s", "session", "size", "states", "tenant", "told_s"),
        *("wait", "was_held"),
    )

    def __init__(self, session: str, born_s: float, states: int) -> None:
        self.session = session
        self.tenant = tenant_of(session)
        self.chain = Chain(self)
        self.active = 0
        self.born_s = born_s
        self.ended_s: float | None = None
        self.wait: Wait = "unknown"
        self.told_s: float | None = None
        self.returned_s: float | None = None
        self.was_held = self.has_overlapped = False
        self.first_tokens = 0
        self.expected = Expectation(0.0, 0.0)
        self.prio = self.size = self.foreign = self.handed_out = 0
        self.is_cut = self.is_over = self.is_doubted = False
        self.lru_kept: int | None = None
        self.states: deque[int] = deque(maxlen=states)

    @property
    def is_held(self) -> bool:
        """Whether its blocks are evicted late."""
        return self.chain.place == "leased"

    @property
    def until_s(self) -> float:
        """When its lease ends."""
        return (self.ended_s or 0.0) + self.expected.lasts_s

    @property
    def is_alive(self) -> bool:
        """Whether blocks that it shares are worth more with it than without an owner."""
        return self.active > 0 or self.is_held

    def facts(self) -> Leased:
        """Return what the order of eviction is made from."""
        return Leased(
            ended_s=self.ended_s or 0.0,
            wait_s=self.expected.wait_s,
            lasts_s=self.expected.lasts_s,
            spread=self.expected.spread,
            born_s=self.born_s,
            prio=self.prio,
            is_active=self.active > 0,
        )


def alive(chain: Chain | None) -> Any:
    """Return whether an owner is a session that its blocks are worth keeping for."""
    return chain is not None and chain.lease is not None and chain.lease.is_alive
