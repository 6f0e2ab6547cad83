"""Short words for asking a checked engine."""

from __future__ import annotations

import random

from tenuto_vllm import TurnScheduler, _wire
from tenuto_vllm.retention.hint import Hint, pack

from .checked import CheckedEngine

POOL = 200


def engine_of(scheduler=TurnScheduler, blocks=POOL, **how):
    return CheckedEngine(scheduler, blocks, batched_tokens=512, **how)


def some_tokens(many, seed=0):
    draw = random.Random(seed)
    return [draw.randrange(3, 500) for _ in range(many)]


def hint(session, **turn):
    return pack(Hint(session, turn=_wire.Turn(**{"next": "tool", **turn})))


def answer(engine, tokens, said="", most=16):
    """Ask, wait for the end, and return what became of it."""
    name = engine.submit(tokens, most, hint=said)
    while engine.asks[name].done_s is None:
        engine.step()
    engine.drain()
    engine.check()
    return engine.asks[name]


def chat(engine, blocks, seed="chat"):
    """Let a request without a session take so many blocks."""
    answer(engine, some_tokens(blocks * engine.block_size - 1, seed), most=1)


def leased(engine):
    return engine.ours.state()["leased"]
