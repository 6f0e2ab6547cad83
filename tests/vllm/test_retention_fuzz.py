"""Thousands of random requests on vLLM's own scheduler: nothing is lost, nothing is wrong.

After every step the queue and the keeper of leases are walked, and every block that a request is
given from the cache is compared with what was written to it.
"""

from __future__ import annotations

import json
import random

import pytest

# First: it silences what vLLM's import warns of.
from benchmarks.retention.virtual import AsyncScheduler, Scheduler
from tenuto_vllm import TurnScheduler, _wire
from tenuto_vllm.retention.hint import Hint, pack

from .checked import CheckedEngine
from .fuzz import Fuzz, all_sessions


def assert_nothing_is_held(engine):
    pool = engine.pool
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1
    assert all(block.ref_cnt == 0 for block in pool.blocks if not block.is_null)
    assert not engine.scheduler.requests
    json.dumps(engine.ours.state())


KINDS = [
    pytest.param({"kind": "full"}, id="full attention"),
    pytest.param({"kind": "window", "interval": 0}, id="sliding window"),
    pytest.param({"kind": "window", "interval": None}, id="sliding window, dense"),
    pytest.param({"kind": "mamba", "interval": 0}, id="mamba"),
    pytest.param({"kind": "mamba", "interval": 64}, id="mamba, each 64 tokens"),
]
MODES = [
    pytest.param({"late": True}, id="asynchronous"),
    pytest.param({"late": False, "blocks": 160}, id="synchronous"),
    pytest.param({"late": True, "policy": "priority"}, id="priorities"),
    pytest.param({"late": True, "deferred": True, "blocks": 260}, id="deferred frees"),
]


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", [0])
def test_random_requests_lose_no_block_and_hit_only_what_is_right(how, mode, seed):
    fuzz = Fuzz(repr((how, mode, seed)), TurnScheduler, **how, **mode)
    fuzz.run(400)
    engine = fuzz.engine
    assert_nothing_is_held(engine)
    assert fuzz.did["finished"] + fuzz.did["aborts"] == fuzz.did["requests"]
    states = engine.scheduler.tenuto_states
    assert states is None or not states.counts["failed"]
    # It came to what it is about.
    counts = engine.ours.state()["counts"]
    for what in ("leased", "expired", "lost", "released", "returned"):
        fuzz.did[what] = counts[what]
    fuzz.did.update(verified=engine.verified, resumed=engine.resumed)
    assert min(fuzz.did.values()) > 0, fuzz.did
    engine.tell(ended=all_sessions())
    engine.step()
    assert engine.ours.state()["leased"] == 0


class Recorded:
    """What a run without hints gets of the pool: each step's free blocks, and who got which."""

    def __init__(self, scheduler, **how):
        fuzz = Fuzz(repr(how), scheduler, marked=False, **how)
        self.handed_out, self.free = [], []
        pool, step = fuzz.engine.pool, fuzz.engine.step
        get_new_blocks = pool.get_new_blocks

        def recorded_blocks(many):
            blocks = get_new_blocks(many)
            self.handed_out.append([block.block_id for block in blocks])
            return blocks

        def recorded_step():
            scheduled = step()
            self.free.append(pool.get_num_free_blocks())
            return scheduled

        pool.get_new_blocks, fuzz.engine.step = recorded_blocks, recorded_step
        fuzz.run(300)
        self.answers = [ask.out for ask in fuzz.engine.asks.values()]
        self.queue = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("late", [True, False], ids=["asynchronous", "synchronous"])
def test_without_hints_every_block_goes_to_the_request_that_it_went_to(how, late):
    stock = AsyncScheduler if late else Scheduler
    plain, ours = Recorded(stock, late=late, **how), Recorded(TurnScheduler, late=late, **how)
    assert ours.handed_out == plain.handed_out
    assert vars(ours) == vars(plain)


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("late", [True, False], ids=["asynchronous", "synchronous"])
def test_leases_of_three_times_the_pool_let_every_request_finish(how, late):
    blocks, sessions, length = 200, 20, 480
    engine = CheckedEngine(TurnScheduler, blocks, batched_tokens=512, late=late, **how)
    assert sessions * length == 3 * blocks * engine.block_size
    draw = random.Random(0)
    turn = _wire.Turn(next="tool", gap=300_000, ttl=600, prio=8)
    contexts = {f"session-{i}": some_tokens(draw, length) for i in range(sessions)}
    for _ in range(3):
        asked = {engine.submit(some_tokens(draw, 300), 40): "" for _ in range(20)}
        asked |= {
            engine.submit(tokens, 20, hint=pack(Hint(name, turn=turn))): name
            for name, tokens in contexts.items()
        }
        finish(engine, asked)
        assert 0.5 * blocks < engine.ours.state()["leased"] <= 0.9 * blocks
        for request, name in asked.items():
            if name:
                contexts[name] = engine.asks[request].tokens
    # One that needs all that stock vLLM could give it: a window takes up to eighty blocks as well.
    finish(engine, [engine.submit(some_tokens(draw, (blocks - 80) * engine.block_size), 1)])
    assert_nothing_is_held(engine)


def some_tokens(draw, many):
    return [draw.randrange(3, 500) for _ in range(many)]


def finish(engine, requests):
    for _ in range(3000):
        if all(engine.asks[name].done_s is not None for name in requests):
            return engine.drain()
        engine.step()
    raise AssertionError("a request did not finish")
