"""Drive the sessions of a trace against an OpenAI-compatible server, in recorded order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from openai import AsyncOpenAI

import tenuto
from tenuto.replay.observe import TurnResult, observe
from tenuto.replay.text import prompt_text
from tenuto.trace import Session, Trace, children_of


async def replay(
    trace: Trace,
    client: AsyncOpenAI,
    *,
    model: str,
    workload: str,
    clock: Callable[[], float],
    marked: bool = False,
    run_id: str | None = None,
    max_output_tokens: int = 16,
    time_scale: float = 0.0,
    on_turn: Callable[[TurnResult], None] | None = None,
) -> list[TurnResult]:
    """Play one trace through `/v1/completions`, streaming.

    | waits for                          | what                                          |
    |------------------------------------|-----------------------------------------------|
    | its session's turn before it       | every turn                                    |
    | the parent's turn that spawned it  | a subagent's first turn                       |
    | the subagents that it joined       | a parent's turn; others run beside each other |
    | the recorded pause * `time_scale`  | every turn, after all of the above            |

    Args:
        trace: what to play.
        client: whom to ask; wrapped by `tenuto.wrap` where the calls are to be marked.
        model: served model name; its tokenizer should give one token for each byte.
        workload: name that the results carry.
        clock: current time in seconds.
        marked: open the scopes of a run and of its agents around the calls.
        run_id: the run's id when marked; the trace's id by default.
        max_output_tokens: answers are cut to this; each asks for at least one token.
        time_scale: share of the recorded pauses to keep, >= 0; 0 goes on at once.
        on_turn: told of each result as it comes.

    Returns:
        The results in the order in which the answers were complete.

    Raises:
        ExceptionGroup: of what the client raised; the other sessions are cancelled.
    """
    results: list[TurnResult] = []
    run = tenuto.run(run_id or trace.id) if marked else None

    async def ask(session: Session, index: int) -> None:
        turn = session.turns[index]
        call = client.completions.create(
            model=model,
            prompt=prompt_text(turn.block_ids, turn.input_tokens, trace.block_size, salt=trace.id),
            max_tokens=max(1, min(max_output_tokens, turn.output_tokens)),
            temperature=0.0,
            stream=True,
            stream_options={"include_usage": True},
        )
        result, _ = await observe(
            call,
            workload=workload,
            session=session.label,
            agent=session.agent,
            turn=index,
            clock=clock,
        )
        results.append(result)
        if on_turn is not None:
            on_turn(result)

    player = _Player(trace, run, time_scale, ask)
    with run if run is not None else nullcontext():
        async with asyncio.TaskGroup() as group:
            for root in children_of(trace, None):
                group.create_task(player.play(root, _first_s(root)))
    return results


@dataclass(frozen=True, slots=True)
class _Player:
    """Keeps the recorded order; `ask` makes the call of a session's turn."""

    trace: Trace
    run: tenuto.Run | None
    time_scale: float
    ask: Callable[[Session, int], Awaitable[None]]

    async def play(self, session: Session, ready_s: float) -> None:
        """Play a session and what it spawns; `ready_s` is the recorded time it was free."""
        children = children_of(self.trace, session.label)
        tasks: dict[str, asyncio.Task[None]] = {}

        def spawn(group: asyncio.TaskGroup, after: int | None, at_s: float) -> None:
            for child in children:
                if child.spawned_after == after:
                    tasks[child.label] = group.create_task(self.play(child, at_s))

        with self._scope(session):
            async with asyncio.TaskGroup() as group:
                spawn(group, None, ready_s)
                for index, turn in enumerate(session.turns):
                    for child in children:
                        if child.joined_before == index:
                            await tasks[child.label]
                            ready_s = max(ready_s, _last_s(child))
                    await asyncio.sleep(max(0.0, turn.start_s - ready_s) * self.time_scale)
                    await self.ask(session, index)
                    ready_s = turn.end_s
                    spawn(group, index, ready_s)

    def _scope(self, session: Session) -> AbstractContextManager[object]:
        if self.run is None:
            return nullcontext()
        siblings = [
            other.label
            for other in children_of(self.trace, session.parent)
            if other.agent == session.agent
        ]
        return self.run.agent(session.agent, instance=siblings.index(session.label))


def _first_s(session: Session) -> float:
    return session.turns[0].start_s if session.turns else 0.0


def _last_s(session: Session) -> float:
    return max((turn.end_s for turn in session.turns), default=0.0)
