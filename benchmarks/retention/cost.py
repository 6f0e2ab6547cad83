"""What the order of free blocks costs: `python -m benchmarks.retention.cost` prints JSON.

Stock and ours do the same work in turn in one process, so that the machine's drift meets both;
a figure is the median of the ratios within pairs. Blocks are of 16 tokens.
"""

from __future__ import annotations

import functools
import gc
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.machine import machine
from benchmarks.retention.virtual import AsyncScheduler, VirtualEngine
from tenuto_vllm import TurnScheduler, _wire
from tenuto_vllm.retention.hint import Hint, pack

PROMPT_BLOCKS, POOL, SESSIONS, ROUNDS = 6250, 50_000, 7, 5
LEASED, DECODING, STEPS = 10_000, 64, 600

Times = dict[str, list[float]]


def per_request(*, marked: bool, ours: type = TurnScheduler) -> dict[str, Any]:
    """Return the costs of one request of 100,000 tokens where the pool is full of others."""
    engines = [_large(AsyncScheduler), _large(ours)]
    times: list[Times] = [defaultdict(list), defaultdict(list)]
    for engine, kept in zip(engines, times, strict=True):
        pool, scheduler = engine.pool, engine.scheduler
        _timed(pool, "get_new_blocks", kept, lambda many: many > PROMPT_BLOCKS // 2)
        _timed(pool, "touch", kept, lambda blocks: len(blocks) > PROMPT_BLOCKS // 2)
        _timed(scheduler, "_free_blocks", kept, lambda _: True)
        # A part of the one above; the rest of that is the stamp.
        _timed(pool, "free_blocks", kept, lambda _: True)
    for at in range(ROUNDS * SESSIONS):
        first = [at % 500 + 3, *(3 + (i * 7 + at) % 497 for i in range(PROMPT_BLOCKS * 16))]
        hint = _hint(f"session-{at}") if marked else ""
        for engine in engines if at % 2 else engines[::-1]:
            tokens = first
            for _ in range(2):
                tokens = [*_answer(engine, tokens, hint), *first[:40]]
    stock, mine = times
    # The pool fills in the first round: nothing is evicted there.
    return {
        name: _compared(*(kept[name][len(kept[name]) // ROUNDS :] for kept in (stock, mine)))
        for name in stock
    }


def per_step(*, marked: bool, ours: type = TurnScheduler) -> dict[str, Any]:
    """Return the cost of a step of 64 answers, beside 10,000 blocks of others."""
    engines = [VirtualEngine(one, 20_000, batched_tokens=8192) for one in (AsyncScheduler, ours)]
    for engine in engines:
        for number in range(LEASED // 100):
            tokens = [3 + (i * 3 + number) % 497 for i in range(100 * 16)]
            _answer(engine, tokens, _hint(f"session-{number}") if marked else "")
        for number in range(DECODING):
            tokens = [3 + (i * 5 + number) % 497 for i in range(500)]
            engine.submit(tokens, 3 * STEPS, hint=_hint(f"running-{number}") if marked else "")
        for _ in range(20):
            engine.step()
    if marked and engines[1].ours.state()["leased"] < LEASED:
        raise RuntimeError(f"too little is leased: {engines[1].ours.state()}")
    times: list[list[float]] = [[], []]
    for at in range(STEPS):
        for side in (0, 1) if at % 2 else (1, 0):
            started = time.perf_counter()
            engines[side].step()
            times[side].append(time.perf_counter() - started)
    return _compared(*times)


def _large(scheduler: type) -> VirtualEngine:
    return VirtualEngine(scheduler, POOL, batched_tokens=131_072, longest=131_072)


def _hint(session: str) -> str:
    return pack(Hint(session, turn=_wire.Turn(next="tool", gap=60_000, ttl=3600)))


def _answer(engine: VirtualEngine, tokens: Sequence[int], hint: str) -> list[int]:
    name = engine.submit(tokens, 2, hint=hint)
    while engine.asks[name].done_s is None:
        engine.step()
    engine.drain()
    return engine.asks.pop(name).tokens


def _timed(owner: Any, name: str, kept: Times, counts: Callable[[Any], bool]) -> None:
    """Keep how long each call takes of one method of an object, where it is of size."""
    method = getattr(owner, name)

    @functools.wraps(method)
    def timed(given: Any) -> Any:
        if not counts(given):
            return method(given)
        started = time.perf_counter()
        result = method(given)
        kept[name].append(time.perf_counter() - started)
        return result

    setattr(owner, name, timed)


def _compared(stock: Sequence[float], ours: Sequence[float]) -> dict[str, float]:
    ratios = [mine / theirs for theirs, mine in zip(stock, ours, strict=True)]
    return {
        "stock_ms": round(statistics.median(stock) * 1000, 3),
        "ours_ms": round(statistics.median(ours) * 1000, 3),
        "ratio": round(statistics.median(ratios), 3),
        "pairs": len(ratios),
    }


def main() -> None:
    # As vLLM's engine does once it has started; a collection would hit either side by chance.
    gc.freeze()
    gc.disable()
    cases: dict[str, dict[str, Any]] = {
        "": {"marked": True},
        ", no marker": {"marked": False},
        ", stock against stock": {"marked": False, "ours": AsyncScheduler},
    }
    figures: dict[str, Any] = {"machine": machine()}
    for what, measure in (("request", per_request), ("step", per_step)):
        for name, how in cases.items():
            figures[what + name] = measure(**how)
            gc.collect()
    json.dump(figures, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
