"""Drive the sessions of traces against an OpenAI-compatible server, in recorded order."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from openai import AsyncOpenAI

from tenuto.replay.ask import Ask, Prompt
from tenuto.replay.marks import Marks
from tenuto.replay.observe import observe
from tenuto.replay.reach import Reach
from tenuto.replay.reached import Reached
from tenuto.replay.schedule import CallRef, Due, Schedule
from tenuto.results import TurnResult
from tenuto.trace.model import Trace


async def replay(
    traces: Sequence[Trace],
    client: AsyncOpenAI,
    *,
    ask: Ask,
    schedule: Schedule,
    clock: Callable[[], float],
    marked: bool = False,
    part: str = "",
    cache_bust: bool = True,
    reach: Reach | None = None,
    concurrency: int | None = None,
    repeat: int = 0,
    fail_fast: bool = False,
    on_turn: Callable[[TurnResult], None] | None = None,
    on_error: Callable[[Exception], None] | None = None,
) -> list[TurnResult]:
    """Play traces once, streaming.

    Args:
        traces: what to play, ids unlike each other; see `tenuto.replay.dense`.
        client: whom to ask; wrapped by `tenuto.wrap` where the calls are to be marked.
        ask: how the turns are asked for.
        schedule: of the same traces, not started: when.
        clock: current time in seconds.
        marked: open the scopes of a run and of its agents around the calls.
        part: what tells this playing of a trace from others; runs are named by the trace's id
            and this.
        cache_bust: make prompts that share nothing with those of another `part`.
        reach: what was sent to the server before, to be added to; None does not follow it.
        concurrency: calls in flight at most; those above it wait, first come, first served.
        repeat: see `TurnResult`.
        fail_fast: raise what a call raises, and stop; else it is a result with an `error`.
        on_turn: told of each result, when all calls before it have ended.
        on_error: told of what each call that failed raised, at once.

    Returns:
        The results, in the order in which the calls were sent.

    Raises:
        ValueError: traces with one id, or prompts that cannot be made.
        Exception: with `fail_fast`, what the client raised; the other calls are cancelled.
    """
    if len({trace.id for trace in traces}) < len(traces):
        raise ValueError("two traces have one id; replay them one after another")
    if concurrency is not None and concurrency < 1:
        raise ValueError(f"concurrency is {concurrency}; the least is 1")
    player = _Player(
        traces,
        client,
        ask=ask,
        schedule=schedule,
        clock=clock,
        marked=marked,
        part=part,
        salt=part if cache_bust else "",
        limit=concurrency,
        repeat=repeat,
        fail_fast=fail_fast,
        on_error=on_error,
    )
    results: list[TurnResult] = []

    def tell(result: TurnResult) -> None:
        results.append(result)
        if on_turn is not None:
            on_turn(result)

    await player.play(Reached(reach if ask.route == "completions" else None, tell))
    return results


class _Player:
    """Sends what is due; `schedule` knows what becomes due next."""

    def __init__(
        self,
        traces: Sequence[Trace],
        client: AsyncOpenAI,
        *,
        ask: Ask,
        schedule: Schedule,
        clock: Callable[[], float],
        marked: bool,
        part: str,
        salt: str,
        limit: int | None,
        repeat: int,
        fail_fast: bool,
        on_error: Callable[[Exception], None] | None,
    ) -> None:
        self._traces = traces
        self._client = client
        self._ask = ask
        self._schedule = schedule
        self._clock = clock
        self._marked = marked
        self._part = part
        self._salt = salt
        self._limit = limit
        self._repeat = repeat
        self._fail_fast = fail_fast
        self._on_error = on_error
        self._due: list[Due] = []
        self._held_back: deque[Due] = deque()
        self._prompts: dict[CallRef, tuple[int, Prompt]] = {}
        self._asked = 0
        self._flying: set[asyncio.Task[None]] = set()
        self._in_flight = 0
        self._ended: deque[tuple[CallRef, float]] = deque()
        self._has_ended = asyncio.Event()
        self._failed: list[Exception] = []
        self._marks: dict[int, Marks] = {}
        self._left = [trace.requests for trace in traces]

    async def play(self, reached: Reached) -> None:
        try:
            self._wait_for(self._schedule.start(self._clock()))
            while self._schedule.remaining:
                self._has_ended.clear()
                self._learn_ended()
                if self._failed:
                    raise self._failed[0]
                self._send_due(reached)
                await self._until_next()
        finally:
            flying = tuple(self._flying)
            for task in flying:
                task.cancel()
            await asyncio.gather(*flying, return_exceptions=True)
            reached.flush()

    def _wait_for(self, due: Sequence[Due]) -> None:
        # Before their time, so that it does not make them late.
        for one in due:
            trace = self._traces[one.ref.trace]
            turn = trace.sessions[one.ref.session].turns[one.ref.turn]
            prompt = self._ask.prompt(
                turn, trace.block_size, salt=trace.space + self._salt, call=self._asked
            )
            self._mark(one.ref.trace)
            self._prompts[one.ref] = (self._asked, prompt)
            self._asked += 1
            heapq.heappush(self._due, one)

    def _learn_ended(self) -> None:
        while self._ended:
            ref, end_s = self._ended.popleft()
            self._in_flight -= 1
            if self._marked:
                self._unmark(ref)
            self._wait_for(self._schedule.finished(ref, end_s))

    def _send_due(self, reached: Reached) -> None:
        now_s = self._clock()
        while self._due and self._due[0].at_s <= now_s:
            self._held_back.append(heapq.heappop(self._due))
        while self._held_back and (self._limit is None or self._in_flight < self._limit):
            due = self._held_back.popleft()
            self._in_flight += 1
            number, prompt = self._prompts.pop(due.ref)
            trace = self._traces[due.ref.trace]
            reached.send(number, trace, trace.sessions[due.ref.session].turns[due.ref.turn])
            task = asyncio.create_task(self._call(due, number, prompt, reached))
            self._flying.add(task)
            task.add_done_callback(self._flying.discard)

    async def _until_next(self) -> None:
        if not self._schedule.remaining or self._has_ended.is_set():
            return
        wait_s = max(0.0, self._due[0].at_s - self._clock()) if self._due else None
        try:
            async with asyncio.timeout(wait_s):
                await self._has_ended.wait()
        except TimeoutError:
            pass

    async def _call(self, due: Due, number: int, prompt: Prompt, reached: Reached) -> None:
        trace = self._traces[due.ref.trace]
        session = trace.sessions[due.ref.session]
        turn = session.turns[due.ref.turn]
        start_s = self._clock()
        try:
            with self._entered(due.ref):
                result, _ = await observe(
                    self._ask.call(self._client, turn, prompt),
                    trace=trace.id,
                    session=session.label,
                    agent=session.agent,
                    turn=due.ref.turn,
                    clock=self._clock,
                    due_s=due.at_s,
                    repeat=self._repeat,
                )
        except Exception as error:
            if self._on_error is not None:
                self._on_error(error)
            if self._fail_fast:
                self._failed.append(error)
            result = TurnResult(
                trace=trace.id,
                session=session.label,
                agent=session.agent,
                turn=due.ref.turn,
                rank=None,
                prompt_tokens=turn.input_tokens,
                cached_tokens=0,
                output_tokens=0,
                due_s=due.at_s,
                start_s=start_s,
                first_token_s=(end_s := self._clock()),
                end_s=end_s,
                repeat=self._repeat,
                error=type(error).__name__,
            )
        try:
            reached.done(number, result)
        except Exception as error:
            self._failed.append(error)
        self._ended.append((due.ref, result.end_s))
        self._has_ended.set()

    def _mark(self, index: int) -> None:
        if self._marked and index not in self._marks:
            trace = self._traces[index]
            self._marks[index] = Marks(trace, trace.id + self._part)

    def _entered(self, ref: CallRef) -> AbstractContextManager[object]:
        if not self._marked:
            return nullcontext()
        return self._marks[ref.trace].entered(ref.session, ref.turn)

    def _unmark(self, ref: CallRef) -> None:
        marks = self._marks[ref.trace]
        if ref.turn + 1 == len(self._traces[ref.trace].sessions[ref.session].turns):
            marks.ended(ref.session)
        self._left[ref.trace] -= 1
        if not self._left[ref.trace]:
            self._marks.pop(ref.trace).end()
