"""N ranks as one state machine: placement, queues, prefill, decode. Pure: time is passed in.

Behind HTTP a real clock calls `advance` when `next_s` has come; in a simulation a virtual
clock jumps there. Nothing else differs.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tenuto_vllm.embedded.latency import Latency
from tenuto_vllm.embedded.placements import PLACEMENTS, Asking, Placement
from tenuto_vllm.embedded.pool import Ints, Pool, Table
from tenuto_vllm.embedded.returns import Returns
from tenuto_vllm.embedded.seen import Seen
from tenuto_vllm.embedded.stock import RankLoad
from tenuto_vllm.retention import RETENTIONS, Retention, Wait


@dataclass(frozen=True, slots=True)
class Call:
    """One request as the engine sees it.

    Attributes:
        keys: of the prompt's full blocks, shape (prompt_tokens // block size,).
        prompt_tokens: length of the prompt, >= 1.
        output_tokens: length of the answer, >= 1.
        output_keys: of the blocks that the answer fills; None where no prompt will have them.
        session: its session; empty in none.
        run: its run, empty in none.
        user: whose it is.
        parent: its session's parent, empty without one.
        turn: index in the session.
        inherits: the session begins with its parent's context.
        keep: leading tokens of the turn before that it has too; None for all.
        wait: what ends the wait after it.
        is_final: it is its session's last.
        gap_s: wait that the client expects after it; None when it says nothing.
        next_gap_s: the real wait, None for no next turn; for oracles alone.
        next_keeps: leading blocks that the session's next turn has too; for oracles alone.
        takes_s: how long it takes whatever it finds cached; None where the latency model says.
    """

    keys: Ints
    prompt_tokens: int
    output_tokens: int
    output_keys: Ints | None = None
    session: str = ""
    run: str = ""
    user: str = ""
    parent: str = ""
    turn: int = 0
    inherits: bool = False
    keep: int | None = None
    wait: Wait = "unknown"
    is_final: bool = False
    gap_s: float | None = None
    next_gap_s: float | None = None
    next_keeps: int = 0
    takes_s: float | None = None


@dataclass(eq=False, slots=True)
class Ticket:
    """A call in the engine; times are None until they are known.

    Attributes:
        call: what was asked.
        rank: that serves it.
        submitted_s: when it came.
        admitted_s: when it got its blocks and its prefill began.
        first_s: when its first token is, or will be, there.
        end_s: when its answer is, or will be, complete.
        cached_tokens: prompt tokens found in the cache; 0 until it is admitted.
        is_open: until it has ended or was cancelled.
        expected_tokens: that its rank had most likely to compute, when it was placed.
    """

    call: Call
    rank: int
    submitted_s: float
    admitted_s: float | None = None
    first_s: float | None = None
    end_s: float | None = None
    cached_tokens: int = 0
    is_open: bool = True
    table: Table | None = None
    expected_tokens: int = 0


Kind = Literal["admitted", "first", "end"]


class Happened(NamedTuple):
    """Something that came to pass at `at_s`."""

    at_s: float
    kind: Kind
    ticket: Ticket


@dataclass(slots=True)
class Rank:
    """One rank: its blocks, its line, and counts since its start."""

    pool: Pool
    returns: Returns
    waiting: deque[Ticket] = field(default_factory=deque[Ticket])
    open: set[Ticket] = field(default_factory=set[Ticket])
    prefilling: Ticket | None = None
    running: int = 0
    decoding: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0

    def load(self) -> RankLoad:
        """Return what stock vLLM would know of it."""
        waiting = len(self.waiting)
        return RankLoad(waiting + self.running, waiting, self.running, self.pool.usage)


class Core:
    """The ranks, and what is under way on them.

    Prefill is one request at a time on each rank, first come, first served, and held from
    admission until the prompt is computed; the head of the line waits for free blocks and all
    behind it wait for it. Calls with `takes_s` do not wait for each other's prefill.

    Args:
        ranks: how many, >= 1.
        blocks: of each rank, >= 2.
        block_size: tokens in a block.
        latency: how long things take.
        placement: where calls go that name no rank.
        retention: the order of eviction.
    """

    def __init__(
        self,
        ranks: int,
        blocks: int,
        block_size: int,
        *,
        latency: Latency | None = None,
        placement: Placement = PLACEMENTS["least-loaded"],
        retention: Retention = RETENTIONS["lru"],
    ) -> None:
        self.ranks = [
            Rank(Pool(blocks, block_size, retention), Returns(retention)) for _ in range(ranks)
        ]
        self._latency = latency or Latency()
        self._placement = placement
        self._events: list[tuple[float, int, Kind, Ticket]] = []
        self._happened: list[Happened] = []
        self._order = 0
        self._seen = Seen(ranks, (blocks - 1) * block_size, self._latency)

    @property
    def next_s(self) -> float | None:
        """When `advance` has something to do; None while nothing is under way."""
        if self._happened:
            return self._happened[0].at_s
        return self._events[0][0] if self._events else None

    def submit(self, call: Call, now_s: float, rank: int | None = None) -> Ticket:
        """Place a call and put it in its rank's line; what follows comes from `advance`.

        Args:
            call: it must fit: `Pool.blocks_for` of it is at most `Pool.total`.
            now_s: the time, never before that of an earlier method call.
            rank: where it goes; the placement decides if None.
        """
        if rank is None:
            rank = self._placement(self._asking(call, now_s))
        state = self.ranks[rank]
        state.requests += 1
        ticket = Ticket(call, rank, now_s, expected_tokens=self._seen.sent(call, rank, now_s))
        state.open.add(ticket)
        state.returns.began(call, now_s)
        state.pool.await_turn(call.session, is_active=True)
        state.waiting.append(ticket)
        self._admit(rank, now_s)
        return ticket

    def advance(self, now_s: float) -> list[Happened]:
        """Let time go on to `now_s`; return what came to pass since the last call, in order."""
        while self._events and self._events[0][0] <= now_s:
            at_s, _, kind, ticket = heapq.heappop(self._events)
            if not ticket.is_open:
                continue
            if kind == "first":
                self._first(ticket, at_s)
            else:
                self._end(ticket, at_s)
        happened, self._happened = self._happened, []
        return happened

    def cancel(self, ticket: Ticket, now_s: float) -> None:
        """Take a call back, at any time; one that has ended already is left as it is."""
        if not ticket.is_open:
            return
        state = self.ranks[ticket.rank]
        if ticket.table is None:
            ticket.is_open = False
            state.open.discard(ticket)
            state.waiting.remove(ticket)
            session = ticket.call.session
            others = any(other.call.session == session for other in state.waiting)
            state.pool.await_turn(session, is_active=others)
        else:
            self._release(ticket, now_s, output_blocks=0)
            if ticket.end_s is not None:
                state.decoding -= 1
        if ticket.end_s is None:
            self._seen.gave_up(ticket.rank, ticket.expected_tokens)
        if state.prefilling is ticket:
            state.prefilling = None
        self._admit(ticket.rank, now_s)

    def reset(self) -> bool:
        """Empty the cache of every rank that runs nothing; return whether all could."""
        return all([rank.pool.reset() for rank in self.ranks])

    def _asking(self, call: Call, now_s: float) -> Asking:
        return self._seen.asking(
            call,
            lambda: [rank.load() for rank in self.ranks],
            lambda rank: self.ranks[rank].pool.found(call.keys, call.prompt_tokens),
            now_s,
        )

    def _admit(self, number: int, now_s: float) -> None:
        state = self.ranks[number]
        while state.waiting and state.prefilling is None:
            ticket = state.waiting[0]
            call = ticket.call
            table = state.pool.allocate(
                call.keys,
                call.prompt_tokens,
                call.output_tokens,
                call.output_keys,
                now_s,
                session=call.session,
            )
            if table is None:
                return
            state.waiting.popleft()
            ticket.table, ticket.admitted_s = table, now_s
            ticket.cached_tokens = table.cached_tokens
            state.running += 1
            state.prompt_tokens += call.prompt_tokens
            state.cached_tokens += table.cached_tokens
            if call.takes_s is None:
                uncached = call.prompt_tokens - table.cached_tokens
                ticket.first_s = now_s + self._latency.prefill(uncached, call.prompt_tokens)
                state.prefilling = ticket
            else:
                ticket.first_s = now_s
            self._happened.append(Happened(now_s, "admitted", ticket))
            self._push(ticket.first_s, "first", ticket)

    def _first(self, ticket: Ticket, at_s: float) -> None:
        state, call = self.ranks[ticket.rank], ticket.call
        if call.takes_s is None:
            ticket.end_s = at_s + self._latency.decode(call.output_tokens, state.decoding)
        else:
            ticket.end_s = at_s + call.takes_s
        state.decoding += 1
        self._seen.begun(call, ticket.rank, ticket.expected_tokens, at_s)
        self._happened.append(Happened(at_s, "first", ticket))
        self._push(ticket.end_s, "end", ticket)
        if state.prefilling is ticket:
            state.prefilling = None
            self._admit(ticket.rank, at_s)

    def _end(self, ticket: Ticket, at_s: float) -> None:
        self.ranks[ticket.rank].decoding -= 1
        self._release(ticket, at_s)
        self._seen.ended(ticket.call)
        self._happened.append(Happened(at_s, "end", ticket))
        self._admit(ticket.rank, at_s)

    def _release(self, ticket: Ticket, now_s: float, output_blocks: int | None = None) -> None:
        state, table = self.ranks[ticket.rank], ticket.table
        if table is None:
            return
        parts = state.returns.ended(ticket.call, table, now_s)
        state.pool.release(table, parts, output_blocks)
        state.running -= 1
        state.open.discard(ticket)
        ticket.is_open, ticket.table = False, None

    def _push(self, at_s: float, kind: Kind, ticket: Ticket) -> None:
        self._order += 1
        heapq.heappush(self._events, (at_s, self._order, kind, ticket))
