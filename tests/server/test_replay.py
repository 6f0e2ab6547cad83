"""Recorded sessions against the embedded engine over HTTP: what is cached, and when calls go."""

from __future__ import annotations

import asyncio
import functools
import itertools
import re
import time
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from tenuto.replay import Ask, Reach, Schedule, TurnResult, dense, replay
from tenuto.simulate import Setup, simulate
from tenuto.trace import Trace, read, write
from tenuto_vllm.embedded import EngineSettings, serve
from tests.unit.replay.programs import FORKS

TRACES = Path(__file__).parents[2] / "examples/traces"
BLOCK = 32
MOST_OUTPUT = 16


@functools.cache
def recorded() -> tuple[Trace, ...]:
    names = ("0277", "0403", "0121")
    paths = [TRACES / f"weka_trace_{name}_f8.jsonl.gz" for name in names]
    return tuple(trace for path in paths for trace in read(path))


def settings(blocks: int, block_size: int = BLOCK) -> EngineSettings:
    fast = float("inf")
    return EngineSettings(
        ranks=1,
        blocks=blocks,
        block_size=block_size,
        prefill_tokens_per_s=fast,
        decode_tokens_per_s=fast,
    )


def play(
    url: str,
    traces: tuple[Trace, ...],
    *,
    ask: Ask | None = None,
    schedule: dict[str, Any] | None = None,
    **options: Any,
) -> list[TurnResult]:
    async def run() -> list[TurnResult]:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            await client.models.list()
            return await replay(
                traces,
                client,
                ask=ask or Ask("tiny", max_output_tokens=MOST_OUTPUT),
                schedule=Schedule(traces, **(schedule or {"mode": "asap"})),
                clock=time.monotonic,
                **options,
            )

    return asyncio.run(run())


def test_on_one_large_rank_every_call_finds_all_that_it_could_reach() -> None:
    traces = tuple(read(TRACES / "weka_trace_0277_f8.jsonl.gz"))
    with serve(settings(8000, block_size=16)) as url:
        results = play(url, dense(traces), concurrency=1, reach=Reach(16))
    assert len(results) == 53
    assert [one.cached_tokens for one in results] == [one.reachable_tokens for one in results]
    assert [one.cached_tokens for one in results] == [one.rank_reachable_tokens for one in results]
    assert sum(one.cached_tokens for one in results) > 200_000


# The longest prompt takes 362 blocks, so that a pool of 520 evicts and one of 4000 does not.
@pytest.mark.parametrize("blocks", [4000, 520])
def test_one_call_at_a_time_finds_what_the_simulator_says_call_by_call(blocks: int) -> None:
    setup = Setup(
        ranks=1,
        tokens_per_rank=(blocks - 1) * BLOCK,
        block_size=BLOCK,
        mode="asap",
        concurrency=1,
        max_output_tokens=MOST_OUTPUT,
    )
    simulated = sorted(simulate(recorded(), setup).turns, key=lambda turn: turn.start_s)
    with serve(settings(blocks)) as url:
        replayed = play(url, dense(recorded()), concurrency=1, reach=Reach(BLOCK))
    assert list(map(counts, replayed)) == list(map(counts, simulated))
    lost = sum((one.reachable_tokens or 0) - one.cached_tokens for one in replayed)
    assert (lost > 0) == (blocks == 520)


def counts(one: TurnResult) -> tuple[object, ...]:
    return (
        *(one.trace, one.session, one.turn, one.prompt_tokens, one.cached_tokens),
        *(one.output_tokens, one.reachable_tokens, one.rank_reachable_tokens),
    )


@pytest.mark.parametrize(
    "ask", [Ask("tiny", vocab=5000), Ask("tiny", route="chat")], ids=["tokens", "chat"]
)
def test_prompts_in_other_forms_share_what_the_blocks_share(ask: Ask) -> None:
    with serve(settings(500, block_size=8)) as url:
        results = play(url, (FORKS,), ask=ask, concurrency=1, reach=Reach(8))
    last = next(one for one in results if (one.session, one.turn) == ("main", 2))
    if ask.route == "chat":
        # The server's template stands before the first block and moves it.
        assert last.reachable_tokens is None
        assert last.prompt_tokens > 25
    else:
        assert (last.prompt_tokens, last.cached_tokens, last.reachable_tokens) == (25, 16, 16)


def test_a_closed_loop_keeps_the_recorded_waits() -> None:
    with serve(settings(500, block_size=8)) as url:
        results = play(url, (FORKS,), schedule={"time_scale": 0.01, "gap_cap_s": 5.0})
    main = [one for one in results if one.session == "main"]
    waits = [after.start_s - before.end_s for before, after in itertools.pairwise(main)]
    # Turn 1 waits 10 s after b's end at 10 s, turn 2 waits 9 s after turn 1: 5 s at most.
    assert min(waits) >= 0.05
    b_end_s = max(one.end_s for one in results if one.session == "b")
    assert main[1].due_s == pytest.approx(b_end_s + 0.05)
    assert main[2].due_s == pytest.approx(main[1].end_s + 0.05)
    assert all(one.start_s >= one.due_s for one in results)


def test_a_fixed_schedule_keeps_the_recorded_times() -> None:
    with serve(settings(500, block_size=8)) as url:
        results = play(url, (FORKS,), schedule={"mode": "fixed", "time_scale": 0.01})
    began_s = results[0].due_s
    at = {(one.session, one.turn): one.due_s - began_s for one in results}
    assert at["main", 1] == pytest.approx(0.20)
    assert at["c", 1] == pytest.approx(0.60)
    assert all(one.start_s >= one.due_s for one in results)


def test_another_part_finds_nothing_of_the_first_in_the_cache() -> None:
    with serve(settings(500, block_size=8)) as url:
        first, other, same = (
            play(url, (FORKS,), part=part, cache_bust=bust, concurrency=1)
            for part, bust in (("/0", True), ("/1", True), ("/0", True))
        )
    assert [one.cached_tokens for one in first] == [one.cached_tokens for one in other]
    assert sum(one.cached_tokens for one in same) > sum(one.cached_tokens for one in first)


def test_a_call_that_takes_too_long_is_an_error_and_the_others_go_on() -> None:
    slow = EngineSettings(ranks=1, blocks=500, block_size=8, decode_tokens_per_s=2)

    async def run(url: str) -> list[TurnResult]:
        async with AsyncOpenAI(
            base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=0.2
        ) as client:
            return await replay(
                [FORKS],
                client,
                ask=Ask("tiny"),
                schedule=Schedule([FORKS], mode="asap"),
                clock=time.monotonic,
            )

    with serve(slow) as url:
        results = asyncio.run(run(url))
    assert len(results) == FORKS.requests
    assert {one.error for one in results} <= {"APITimeoutError", "ReadTimeout"}


def test_the_program_of_the_docs_runs_as_it_stands(tmp_path: Path) -> None:
    page = (TRACES.parents[1] / "docs/replaying.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    path = tmp_path / "trace.jsonl.gz"
    write(path, [FORKS])
    with serve(settings(500, block_size=8)) as url:
        given = {"trace.jsonl.gz": str(path), "http://localhost:8000": url}
        for shown, real in given.items():
            assert program.count(shown) == 1
            program = program.replace(shown, real)
        names: dict[str, Any] = {}
        exec(program, names)
    assert len(names["results"]) == FORKS.requests
    assert {one.error for one in names["results"]} == {None}
