"""The keeper of leases: which free blocks go late, and whose go first.

It is told what happens to requests and moves blocks of the queue between its segments; whom it
prefers is decided in `tenuto_vllm.retention`. Nothing in here changes how many blocks are free.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tenuto_vllm.engine.book import Book
from tenuto_vllm.engine.lease import Lease
from tenuto_vllm.engine.queue import TurnQueue
from tenuto_vllm.engine.room import Room
from tenuto_vllm.engine.sessions import Sessions
from tenuto_vllm.engine.sharing import abandon, adopt, claim, gather, hand_over, passed
from tenuto_vllm.engine.waiting import Waiting
from tenuto_vllm.retention.held import Wait
from tenuto_vllm.retention.hint import Hint
from tenuto_vllm.retention.told import ToldTurn, read_told

_WAITS: dict[str | None, Wait] = {"tool": "tool", "child": "tool", "user": "user"}
EVENTS = (
    *("leased", "honoured", "expired", "demoted", "lost", "released", "superseded", "returned"),
    *("hits", "saved_tokens"),
)


class Leases:
    """For one engine; every method is called by its scheduler's thread.

    Args:
        queue: of free blocks.
        blocks: all of the pool, by id.
        block_size: tokens in a block.
        groups: kinds of cache that the model has. With several a session is worth little
            without its last state, so that its blocks go together.
        share: of the pool that may be leased in all, 0..1.
        tenant_share: the same for each tenant.
        sessions: of how many something is known.
        states: blocks of each session's newest checkpoints that stay with it.
        clock: seconds, from any start.
    """

    def __init__(
        self,
        queue: TurnQueue,
        blocks: Sequence[Any],
        *,
        block_size: int = 16,
        groups: int = 1,
        share: float = 0.9,
        tenant_share: float = 0.9,
        sessions: int = 8192,
        states: int = 14,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.queue = queue
        self.clock = clock
        self.counts: Counter[str] = Counter(dict.fromkeys(EVENTS, 0))
        self.heard: Callable[[str, Lease], None] | None = None
        self._blocks = blocks
        self._is_whole = groups > 1
        self._block_size = block_size
        # For so many blocks at once room is made, and the leases are counted.
        self._batch = max(1, len(blocks) >> 6)
        self._freed = 0
        self._sessions = Sessions(sessions, states)
        self._book = Book(int(share * len(blocks)), int(tenant_share * len(blocks)))
        self._waiting = Waiting(sessions)
        self._room = Room(queue, self._book, self._count, self._is_whole)
        queue.make_room = lambda need: self._room.make(max(need, self._batch), self.clock())

    def began(self, hint: Hint) -> None:
        """Take in that a request has come."""
        if hint.turn.kind == "auxiliary":
            return
        now_s = self.clock()
        lease = self._sessions.open(hint, now_s)
        lease.active += 1
        lease.is_over = False
        lease.has_overlapped |= lease.active > 1
        if lease.active == 1 and lease.ended_s is not None:
            lease.returned_s, lease.was_held = now_s, lease.is_held
            handed_out = self.queue.handed_out - lease.handed_out
            lease.lru_kept = self._sessions.kept_by_lru(lease, handed_out, len(self._blocks))
        self._sessions.touch(lease)
        if (surplus := self._sessions.surplus()) is not None:
            self._demote(surplus)
            self._forget(surplus)

    def ends(self, hint: Hint, table: Sequence[Any], hits: int, cached_tokens: int) -> str:
        """Take in that a turn has ended, before its blocks are freed.

        Args:
            hint: of its request.
            table: its blocks; of a model with one kind of cache in the prompt's order.
            hits: leading blocks that it found in the cache.
            cached_tokens: tokens of its prompt that it found there.

        Returns:
            The decision: `discarded` (evicted first), `ordinary` or `leased`.
        """
        queue, turn = self.queue, hint.turn
        queue.has_owners = True
        if turn.kind == "auxiliary":
            # What it has found is others' as well.
            for block in () if self._is_whole else table[hits:]:
                if queue.owners[block.block_id] is None:
                    queue.owners[block.block_id] = queue.discard
            return "discarded"
        lease = self._sessions.get(hint.session)
        if lease is None:
            return "ordinary"
        self._returned(lease, hits, cached_tokens)
        if not lease.has_overlapped:
            self._supersede(lease, is_known=turn.keep is not None or turn.phase == "compact")
        claim(queue, lease, table, hits, is_whole=self._is_whole)
        if not lease.size:
            lease.first_tokens = len(table) * self._block_size
        lease.size = len(table)
        lease.is_cut = False
        now_s = self.clock()
        lease.ended_s = now_s
        lease.prio = turn.prio or 0
        lease.wait = _WAITS.get(turn.next, "unknown")
        lease.told_s = None if turn.gap is None else turn.gap / 1000.0
        if turn.next == "end" or turn.ttl == 0:
            self._book.strike(lease)
            queue.retire(lease.chain)
            return "ordinary"
        queue.lease(lease.chain)
        self._expect(lease, turn.ttl)
        self._count("leased", lease)
        # A table of its own alone, so that each block need not be looked up as it is freed.
        queue.sole = None if lease.foreign or self._is_whole else lease.chain
        return "leased"

    def ended(self, hint: Hint, is_turn: bool, adopted: Sequence[int] = ()) -> None:
        """Take in that the blocks of a request have been freed, or will be.

        Args:
            hint: of the request.
            is_turn: `ends` has been told of it; otherwise it leaves nothing to keep.
            adopted: ids of the checkpoints that it has left.
        """
        self.queue.sole = None
        lease = self._sessions.get(hint.session)
        if lease is None or hint.turn.kind == "auxiliary":
            return
        if is_turn:
            lease.handed_out = self.queue.handed_out
            gather(self.queue, lease, self._blocks)
        else:
            abandon(self.queue, lease, adopted)
        lease.active = max(0, lease.active - 1)
        if not lease.active:
            if lease.has_overlapped or not is_turn:
                # Hits took blocks out, and they are back.
                self.queue.count(lease.chain)
            self._rest(lease)
        self._settle(lease.size if is_turn else lease.chain.blocks)

    def passed(self, table: Sequence[Any]) -> None:
        """Take in that a request of no session has ended, before its blocks are freed."""
        passed(self.queue, table)

    def adopt(self, hint: Hint, block: Any) -> None:
        """Let a checkpoint that leaves its request early join the session's other blocks."""
        lease = self._sessions.get(hint.session)
        if lease is not None and adopt(self.queue, lease, block.block_id):
            self.queue.has_owners = True

    def told(self, text: object) -> None:
        """Take in news, as `read_told` reads them."""
        for turn in (news := read_told(text)).turns:
            self._retime(turn)
        for session in news.ended:
            self._release(session)

    def tick(self) -> None:
        """Let leases end whose time has come; a RuntimeError says that the order was given up."""
        if self.queue.has_failed:
            raise RuntimeError("the order of the blocks was given up")
        if len(self._book) and (now_s := self.clock()) >= self._book.is_due_s:
            for lease in self._book.due(now_s):
                self._count("expired", lease)
                self._demote(lease)

    def clear(self) -> None:
        """Forget all blocks: the cache has been emptied. What was learnt of waits stays."""
        for lease in self._sessions:
            self._demote(lease)
            self.queue.close(lease.chain)
            lease.states.clear()
            lease.ended_s, lease.returned_s, lease.foreign = None, None, 0
        self.queue.owners[:] = [None] * len(self.queue.owners)
        self.queue.heirs.clear()
        self.queue.shared.clear()

    def state(self) -> dict[str, Any]:
        """Return counters since the start and the segments' sizes in blocks."""
        evict_first, ordinary, leased = self.queue.segments()
        return {
            "blocks": len(self._blocks),
            "free": self.queue.num_free_blocks,
            "evict_first": evict_first,
            "ordinary": ordinary,
            "leased": leased,
            "sessions": len(self._sessions),
            "leases": len(self._book),
            "counts": dict(self.counts),
        }

    def decided(self, hint: Hint | None, decision: str) -> dict[str, Any]:
        """Return a decision with what it went by, for the log."""
        said: dict[str, Any] = {"decision": decision, "counts": dict(self.counts)}
        lease = None if hint is None else self._sessions.get(hint.session)
        if lease is not None and lease.is_held:
            wait_s, lasts_s, _ = lease.expected
            said |= {"wait_s": wait_s, "lasts_s": lasts_s, "told_s": lease.told_s}
        return said

    def _returned(self, lease: Lease, hits: int, cached_tokens: int) -> None:
        """Count and learn of a turn that came after a wait, once it has ended well."""
        if lease.returned_s is None or lease.ended_s is None:
            return
        self._count("returned", lease)
        self.counts["honoured"] += lease.was_held
        self.counts["hits"] += hits > 0
        self._waiting.learn(lease, lease.returned_s - lease.ended_s)
        saved = max(0, hits - (lease.lru_kept or 0))
        self.counts["saved_tokens"] += saved * cached_tokens // max(1, hits)
        lease.returned_s = None

    def _forget(self, lease: Lease) -> None:
        self.queue.close(lease.chain)
        self._waiting.forget(lease)
        self._sessions.forget(lease)

    def _supersede(self, lease: Lease, *, is_known: bool) -> None:
        """Let the blocks go first that the last turn had and this one did not use."""
        hand_over(self.queue, lease)
        left = self.queue.count(lease.chain)
        if not left:
            return
        if not is_known and 2 * left > lease.size:
            # More likely a side call under the session's name than its next turn.
            if lease.is_doubted:
                self.queue.cut(lease.chain, left)
            lease.is_doubted = not lease.is_doubted
            return
        lease.is_doubted = False
        self._count("superseded", lease)
        # Where a model resumes only at states, earlier ones are what a fork goes back to.
        kept, spared = (lease.states, math.inf) if self._is_whole else ((), 0)
        self.queue.drop(lease.chain, kept, spared)

    def _expect(self, lease: Lease, ttl_s: float | None) -> None:
        lease.expected = self._waiting.expect(lease, ttl_s)
        self._book.enter(lease)

    def _retime(self, turn: ToldTurn) -> None:
        lease = self._sessions.get(turn.session)
        if lease is None or lease.active or lease.ended_s is None:
            return
        if turn.following == "end" or turn.ttl_s == 0:
            self._demote(lease)
        elif lease.is_held:
            lease.wait = _WAITS.get(turn.following, lease.wait)
            lease.told_s = lease.told_s if turn.gap_s is None else turn.gap_s
            self._expect(lease, turn.ttl_s)
        if self.heard is not None:
            self.heard("retimed", lease)

    def _count(self, event: str, lease: Lease) -> None:
        self.counts[event] += 1
        if self.heard is not None:
            self.heard(event, lease)

    def _release(self, session: str) -> None:
        """End a session: what is its alone goes first."""
        lease = self._sessions.get(session)
        if lease is None:
            return
        if lease.active:
            lease.is_over = True
            return
        self._count("released", lease)
        hand_over(self.queue, lease)
        self._book.strike(lease)
        # What it began with is likely to be what the next session begins with.
        self.queue.drop(lease.chain, spare_tokens=lease.first_tokens)
        self._forget(lease)
        self._settle(lease.size)

    def _settle(self, freed: int) -> None:
        """Keep to the shares: what is leased grows by what is freed, and is counted in batches."""
        self._freed += freed
        if self._freed >= self._batch:
            self._freed = 0
            self._room.enforce(self._batch >> 3, self.clock())

    def _rest(self, lease: Lease) -> None:
        """Take in that a session rests."""
        lease.has_overlapped = False
        if lease.is_over:
            self._release(lease.session)
        elif not lease.is_held:
            self._book.strike(lease)
            lease.chain.is_open = False
            hand_over(self.queue, lease)
        else:
            # It may have run out while the session was in use.
            self._book.enter(lease)

    def _demote(self, lease: Lease) -> None:
        """End a lease: its blocks are ordinary ones that have been used just now."""
        self._book.strike(lease)
        hand_over(self.queue, lease)
        self.queue.demote(lease.chain)
