"""Runs with known noise and planted changes, made without a server."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tenuto.results import Header, Results, TurnResult

HEADER = Header(name="base", traces={}, target="http://server", ranks=4, gpus=4)


@dataclass(frozen=True)
class Server:
    """What a change changes.

    Attributes:
        kept: share of a session's prefix that its rank keeps until the next turn.
        moves: chance that a turn goes to another rank (ties rotate at random).
        s_per_token: of prefill.
        s_per_output: of decode.
        queue_s: mean wait.
        sigma: of the log-normal noise of prefill.
        tells_queue: whether turns say their wait.
        tells_reachable: whether reachable tokens were followed.
    """

    kept: float = 0.98
    moves: float = 0.02
    s_per_token: float = 1e-4
    s_per_output: float = 0.01
    queue_s: float = 0.05
    sigma: float = 0.5
    tells_queue: bool = True
    tells_reachable: bool = True


def run(
    server: Server,
    seed: int,
    *,
    traces: int = 12,
    turns: int = 30,
    repeats: int = 2,
    name: str = "base",
    **header: Any,
) -> Results:
    """Run the same traces every time; `seed` draws what the machine does by chance."""
    noise = np.random.default_rng([1, seed])
    made: list[TurnResult] = []
    for repeat in range(repeats):
        for number in range(traces):
            made += _trace(server, noise, number, turns, repeat)
    digests = {f"trace-{number}": f"{number:032x}" for number in range(traces)}
    asked = HEADER.model_copy(update={"traces": digests, "name": name, "repeats": repeats})
    return Results(asked.model_copy(update=header), _with_noise(made, server, noise))


def _trace(
    server: Server, noise: np.random.Generator, number: int, turns: int, repeat: int
) -> list[TurnResult]:
    recorded = np.random.default_rng([2, number])  # the trace is the same in every run
    prompt, at_s, made = int(recorded.integers(8_000, 30_000)), float(recorded.uniform(0, 20)), []
    reachable = on_rank = 0
    for turn in range(turns):
        output = int(recorded.lognormal(5.0, 0.8)) + 1
        gap_s = float(recorded.lognormal(1.5, 1.0))
        moved = noise.random() < server.moves
        here = int(on_rank * noise.random()) // 64 * 64 if moved else on_rank
        cached = here if noise.random() < server.kept else here // 2 // 64 * 64
        made.append(
            TurnResult(
                trace=f"trace-{number}",
                session="main",
                agent="main",
                turn=turn,
                rank=number % 4,
                prompt_tokens=prompt,
                cached_tokens=cached,
                output_tokens=output,
                due_s=at_s,
                start_s=at_s,
                first_token_s=at_s,
                end_s=at_s,
                repeat=repeat,
                reachable_tokens=reachable if server.tells_reachable else None,
                rank_reachable_tokens=here if server.tells_reachable else None,
            )
        )
        at_s += gap_s + output * 0.01 + (prompt - cached) * 1e-4
        reachable = on_rank = prompt // 64 * 64
        prompt += output + int(recorded.lognormal(6.5, 1.2))
    return made


def _with_noise(
    made: list[TurnResult], server: Server, noise: np.random.Generator
) -> tuple[TurnResult, ...]:
    """Give times whose noise lasts: log-normal, autocorrelated over the run's turns."""
    level: dict[int, float] = {}
    done: list[TurnResult] = []
    for turn in sorted(made, key=lambda one: (one.repeat, one.start_s)):
        before = level.get(turn.repeat, float(noise.normal()))
        level[turn.repeat] = now = 0.8 * before + 0.6 * float(noise.normal())
        slow = float(np.exp(server.sigma * now))
        queue_s = server.queue_s * float(noise.exponential()) * slow
        prefill_s = (0.02 + turn.uncached_tokens * server.s_per_token) * slow
        decode_s = turn.output_tokens * server.s_per_output * float(np.exp(0.1 * noise.normal()))
        first_s = turn.start_s + queue_s + prefill_s
        done.append(
            replace(
                turn,
                first_token_s=first_s,
                end_s=first_s + decode_s,
                queue_s=queue_s if server.tells_queue else None,
            )
        )
    return tuple(done)
