"""Playing traces against the engine on a virtual clock."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence

from tenuto.replay.reach import Reach
from tenuto.replay.schedule import CallRef, Due, Schedule
from tenuto.results import Header, Results, TurnResult
from tenuto.simulate.calls import call_of
from tenuto.simulate.keys import Keys
from tenuto.simulate.setup import Setup
from tenuto.trace import Trace
from tenuto.trace.digest import digest
from tenuto_vllm.embedded.core import Core, Ticket
from tenuto_vllm.embedded.placements import PLACEMENTS
from tenuto_vllm.retention import RETENTIONS


def simulate(
    traces: Sequence[Trace], setup: Setup, *, on_turn: Callable[[TurnResult], None] | None = None
) -> Results:
    """Play traces against a set-up; the same arguments give the same results.

    Args:
        traces: all of one block size, ids unlike each other.
        setup: what they are played against, and how.
        on_turn: told of each result as it comes.

    Raises:
        ValueError: two traces with one id, traces of several block sizes, or one that the
            engine's does not fit.
    """
    if len({trace.id for trace in traces}) < len(traces):
        raise ValueError("two traces have one id; simulate them one after another")
    sizes = sorted({trace.block_size for trace in traces})
    if len(sizes) > 1:
        raise ValueError(f"the traces have blocks of {sizes} tokens; simulate those of one size")
    player = _Player(traces, setup, sizes[0] if sizes else 1, on_turn)
    player.play()
    return Results(header_of(traces, setup), tuple(player.results))


def header_of(traces: Sequence[Trace], setup: Setup) -> Header:
    """Return the header of a simulation's result file."""
    block_size = setup.block_size or (traces[0].block_size if traces else None)
    return Header(
        name=setup.name,
        traces={trace.id: digest(trace) for trace in traces},
        calls={trace.id: trace.requests for trace in traces},
        seed=setup.seed,
        identity="vllm",
        mode=setup.mode,
        time_scale=setup.time_scale,
        gap_cap_s=setup.gap_cap_s,
        live_sessions=setup.live_sessions,
        concurrency=setup.concurrency,
        max_output_tokens=setup.max_output_tokens,
        clock="virtual",
        target="simulator",
        ranks=setup.ranks,
        gpus=float(setup.ranks),
        engine={**setup.engine(), "block_size": block_size},
    )


class _Player:
    def __init__(
        self,
        traces: Sequence[Trace],
        setup: Setup,
        block_size: int,
        on_turn: Callable[[TurnResult], None] | None,
    ) -> None:
        self.results: list[TurnResult] = []
        self._traces = traces
        self._setup = setup
        self._on_turn = on_turn
        self._block_size = setup.block_size or block_size
        self._keys = Keys(block_size, self._block_size)
        self._reach = Reach(self._block_size)
        self._core = Core(
            setup.ranks,
            max(2, setup.tokens_per_rank // self._block_size + 1),
            self._block_size,
            latency=setup.latency,
            placement=PLACEMENTS[setup.placement],
            retention=RETENTIONS[setup.retention],
        )
        self._schedule = Schedule(
            traces,
            mode=setup.mode,
            time_scale=setup.time_scale,
            gap_cap_s=setup.gap_cap_s,
            live_sessions=setup.live_sessions,
        )
        self._due: list[Due] = []
        self._held_back: deque[Due] = deque()
        self._flying: dict[Ticket, tuple[Due, int, int | None]] = {}

    def play(self) -> None:
        self._wait_for(self._schedule.start(0.0))
        while self._due or self._flying:
            at_s = self._core.next_s
            if self._due and (at_s is None or self._due[0].at_s < at_s):
                due = heapq.heappop(self._due)
                self._held_back.append(due)
                self._send_held_back(due.at_s)
                continue
            if at_s is None:
                raise AssertionError("calls are under way and nothing will happen")
            for happened in self._core.advance(at_s):
                if happened.kind == "end":
                    self._ended(happened.ticket, happened.at_s)
                    self._send_held_back(happened.at_s)

    def _wait_for(self, due: Sequence[Due]) -> None:
        for one in due:
            heapq.heappush(self._due, one)

    def _send_held_back(self, now_s: float) -> None:
        limit = self._setup.concurrency
        while self._held_back and (limit is None or len(self._flying) < limit):
            self._send(self._held_back.popleft(), now_s)

    def _send(self, due: Due, now_s: float) -> None:
        trace = self._traces[due.ref.trace]
        turn = trace.sessions[due.ref.session].turns[due.ref.turn]
        keys = self._keys.of(trace.space, turn)
        call = call_of(self._traces, due.ref, self._setup, keys, self._block_size)
        pool = self._core.ranks[0].pool
        if pool.blocks_for(call.prompt_tokens, call.output_tokens) > pool.total:
            self._refused(due, call.prompt_tokens, now_s)
            return
        ticket = self._core.submit(call, now_s)
        reach = self._reach.sent(
            trace.space, turn.blocks, turn.input_tokens, trace.block_size, ticket.rank
        )
        self._flying[ticket] = (due, *reach)

    def _refused(self, due: Due, prompt_tokens: int, now_s: float) -> None:
        session = self._traces[due.ref.trace].sessions[due.ref.session]
        result = TurnResult(
            trace=self._traces[due.ref.trace].id,
            session=session.label,
            agent=session.agent,
            turn=due.ref.turn,
            rank=None,
            prompt_tokens=prompt_tokens,
            cached_tokens=0,
            output_tokens=0,
            due_s=due.at_s,
            start_s=now_s,
            first_token_s=now_s,
            end_s=now_s,
            error="PromptTooLong",
        )
        self._add(due.ref, result, now_s)

    def _ended(self, ticket: Ticket, now_s: float) -> None:
        due, reachable, rank_reachable = self._flying.pop(ticket)
        call = ticket.call
        first_s = ticket.first_s if ticket.first_s is not None else now_s
        admitted_s = ticket.admitted_s if ticket.admitted_s is not None else now_s
        session = self._traces[due.ref.trace].sessions[due.ref.session]
        result = TurnResult(
            trace=self._traces[due.ref.trace].id,
            session=session.label,
            agent=session.agent,
            turn=due.ref.turn,
            rank=ticket.rank,
            prompt_tokens=call.prompt_tokens,
            cached_tokens=ticket.cached_tokens,
            output_tokens=call.output_tokens,
            due_s=due.at_s,
            start_s=ticket.submitted_s,
            first_token_s=first_s,
            end_s=now_s,
            queue_s=admitted_s - ticket.submitted_s,
            reachable_tokens=reachable,
            rank_reachable_tokens=rank_reachable,
        )
        self._add(due.ref, result, now_s)

    def _add(self, ref: CallRef, result: TurnResult, now_s: float) -> None:
        self.results.append(result)
        if self._on_turn is not None:
            self._on_turn(result)
        self._wait_for(self._schedule.finished(ref, now_s))
