"""One side of the demo: a fresh engine, both workloads, with tenuto or without."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from openai import AsyncOpenAI

import tenuto
from examples.demo.engines import MODEL_NAME, Server, embedded_server, vllm_server
from examples.demo.program import work_on
from examples.demo.tickets import TICKETS
from tenuto.replay import TurnResult, replay
from tenuto.trace import Trace, read_weka

RANKS = 2
RECORDED = "recorded coding session"

_TRACE = Path(__file__).resolve().parents[1] / "traces" / "weka_trace_0277_f8.jsonl.gz"
_EXTENSION = "tenuto_vllm.TurnMiddleware"
_OBSERVER = "tenuto_vllm.asgi.observer.RankObserver"

# Each rank could hold every session at once: what is lost is lost to placement, not to
# eviction. 16-token blocks, as many tokens as 10 of the longest prompts.
_BLOCKS = 10_000


@dataclass(frozen=True, slots=True)
class Plan:
    """How one demo runs.

    Attributes:
        engine: "embedded" or "vllm".
        rounds: how many rounds of their plans the agent programs run, 1 to 3.
        time_scale: share of the recorded pauses to keep in the replay.
        prefill_tokens_per_s: modelled speed of a rank of the embedded engine.
        decode_tokens_per_s: modelled speed of an answer of the embedded engine.
    """

    engine: str
    rounds: int = 3
    time_scale: float = 0.004
    prefill_tokens_per_s: float = 8_000.0
    decode_tokens_per_s: float = 400.0


def run_side(plan: Plan, *, marked: bool, tell: Callable[[str], None]) -> tuple[TurnResult, ...]:
    """Start an engine, run both workloads, stop it, and return the results.

    Args:
        plan: what to run, on which engine.
        marked: with the wrapped client and the extension, or without both.
        tell: takes progress lines.

    Raises:
        EngineStartError: when the engine does not start.
        ExceptionGroup: of what failed in a workload.
    """
    with _server(plan, marked=marked) as server:
        tell(f"engine is up after {server.start_s:.1f} s")
        return asyncio.run(_run(plan, server.base_url, marked=marked, tell=tell))


def recorded_session() -> Trace:
    """Return the recorded session that the demo replays."""
    return next(read_weka(_TRACE))


def _server(plan: Plan, *, marked: bool) -> AbstractContextManager[Server]:
    extension = (_EXTENSION,) if marked else ()
    if plan.engine == "vllm":
        return vllm_server(ranks=RANKS, middleware=(*extension, _OBSERVER))
    return embedded_server(
        ranks=RANKS,
        num_blocks=_BLOCKS,
        middleware=extension,
        prefill_tokens_per_s=plan.prefill_tokens_per_s,
        decode_tokens_per_s=plan.decode_tokens_per_s,
    )


async def _run(
    plan: Plan, base_url: str, *, marked: bool, tell: Callable[[str], None]
) -> tuple[TurnResult, ...]:
    results: list[TurnResult] = []

    def note(result: TurnResult) -> None:
        results.append(result)
        if len(results) % 20 == 0:
            tell(f"{len(results)} turns, now {result.workload}")

    async with AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        if marked:
            tenuto.wrap(client)
        # The first request of a process imports and connects; no turn should pay for it.
        await client.models.list()
        started_s = time.monotonic()

        def clock() -> float:
            return time.monotonic() - started_s

        async with asyncio.TaskGroup() as group:
            for ticket in TICKETS:
                work = ticket.first(plan.rounds)
                group.create_task(
                    work_on(work, client, model=MODEL_NAME, clock=clock, on_turn=note)
                )
        await replay(
            recorded_session(),
            client,
            model=MODEL_NAME,
            workload=RECORDED,
            clock=clock,
            marked=marked,
            run_id="demo-recorded",
            time_scale=plan.time_scale,
            on_turn=note,
        )
    return tuple(results)
