"""Where the order cannot be kept, one event says why, and vLLM serves in its own."""

from __future__ import annotations

import copy
import functools
import random
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

# First: it silences what vLLM's import warns of.
from benchmarks.retention import tiny, virtual
from benchmarks.retention.virtual import AsyncScheduler, Scheduler, VirtualEngine
from tenuto_vllm import TurnMixin, TurnScheduler

from .asking import hint, some_tokens
from .checked import CheckedEngine
from .invariants import check

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.engine.core import EngineCore

POOL = 200


def engine_of(scheduler: type, *, kind: type = CheckedEngine, **how: Any) -> VirtualEngine:
    return kind(scheduler, POOL, batched_tokens=512, **how)


def ask(engine: VirtualEngine, tokens: list[int], session: str = "") -> int:
    """Ask alone, and return how many tokens of the prompt were found."""
    name = engine.submit(tokens, 4, hint=hint(session) if session else "")
    while engine.asks[name].done_s is None:
        engine.step()
    engine.drain()
    assert len(engine.asks[name].out) == 4
    return engine.asks[name].cached


def served(engine: VirtualEngine) -> list[Any]:
    """Return which blocks agents and chat together got, and what they were answered."""
    handed_out: list[Any] = []
    get_new_blocks = engine.pool.get_new_blocks

    def recorded(many: int) -> list[Any]:
        blocks = get_new_blocks(many)
        handed_out.append([block.block_id for block in blocks])
        return blocks

    engine.pool.get_new_blocks = recorded
    draw = random.Random(0)
    contexts = [some_tokens(300, number) for number in range(6)]
    names = []
    for turn in range(60):
        session = draw.randrange(12)
        if session < len(contexts):
            contexts[session] += some_tokens(40, turn)
            said = hint(f"session-{session}", gap=5_000)
            names.append(engine.submit(contexts[session], 12, hint=said))
        else:
            names.append(engine.submit(some_tokens(400, f"chat {turn}"), 6))
        for _ in range(draw.randrange(8)):
            engine.step()
    while any(engine.asks[name].done_s is None for name in names):
        engine.step()
    engine.drain()
    return [handed_out, [(engine.asks[name].cached, engine.asks[name].out) for name in names]]


@functools.cache
def of_stock() -> list[Any]:
    return served(engine_of(AsyncScheduler))


def reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.fields["why"]
        for record in caplog.records
        if getattr(record, "event", "") == "retention_off"
    ]


class OtherQueue(kv_cache_utils.FreeKVCacheBlockQueue):
    """Of another extension."""


class WithOtherQueue(AsyncScheduler):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.kv_cache_manager.block_pool.free_block_queue.__class__ = OtherQueue


class MoreToAdd(AsyncScheduler):
    got: Any = None

    def add_request(self, request, source=None):
        self.got = source
        super().add_request(request)


class MoreToFree(AsyncScheduler):
    got: Any = None

    def _free_blocks(self, request, late=None):
        self.got = late
        super()._free_blocks(request)


def with_turns(base: type) -> type:
    return type("Mine", (TurnMixin, base), {})


SWITCHES = [
    ("TENUTO_RETENTION", "0", "it is switched off"),
    ("TENUTO_LEASE_SHARE", "1.5", "TENUTO_LEASE_SHARE is '1.5'; it must be a number from 0 to 1."),
    ("TENUTO_SESSIONS", "many", "TENUTO_SESSIONS is 'many'; it must be a whole number"),
]


@pytest.mark.parametrize(("name", "value", "why"), SWITCHES, ids=[one[0] for one in SWITCHES])
def test_a_setting_that_is_off_or_bad_leaves_vllm_as_it_is(monkeypatch, caplog, name, value, why):
    expected = of_stock()
    monkeypatch.setenv(name, value)
    engine = engine_of(TurnScheduler)
    [said] = reasons(caplog)
    assert said.startswith(why)
    assert engine.ours is None
    assert type(engine.pool.free_block_queue) is kv_cache_utils.FreeKVCacheBlockQueue
    assert served(engine) == expected


SCHEDULERS = [
    (WithOtherQueue, "OtherQueue"),
    (MoreToAdd, "add_request takes request, source"),
    (MoreToFree, "_free_blocks takes request, late"),
]


@pytest.mark.parametrize(("base", "why"), SCHEDULERS, ids=[one[0].__name__ for one in SCHEDULERS])
def test_another_queue_or_scheduler_than_is_known_is_left_as_it_is(caplog, base, why):
    engine = engine_of(with_turns(base))
    [said] = reasons(caplog)
    assert why in said
    assert engine.ours is None
    assert served(engine) == of_stock()


def test_a_cache_without_prefixes_is_left_as_it_is(monkeypatch, caplog):
    def without_caching(*args: Any) -> Any:
        config = copy.deepcopy(tiny.engine_config(*args))
        config.cache_config.enable_prefix_caching = False
        return config

    monkeypatch.setattr(virtual, "engine_config", without_caching)
    stock, ours = engine_of(AsyncScheduler), engine_of(TurnScheduler)
    assert reasons(caplog) == ["prefix caching is off"]
    expected = served(stock)
    assert not any(cached for cached, _ in expected[1])
    assert served(ours) == expected


def test_arguments_that_are_not_known_reach_the_scheduler_below():
    engine = engine_of(with_turns(MoreToAdd))
    add, got = engine.scheduler.add_request, []
    engine.scheduler.add_request = lambda request: got.append(add(request, source="a connector"))
    ask(engine, some_tokens(100), "session-a")
    assert got == [None]
    assert engine.scheduler.got == "a connector"
    engine = engine_of(with_turns(MoreToFree))
    name = engine.submit(some_tokens(100), 4, hint=hint("session-a"))
    engine.step()
    request = engine.asks[name].request
    request.status = tiny.RequestStatus.FINISHED_ABORTED
    engine.scheduler._free_blocks(request, late="much")
    assert engine.scheduler.got == "much"
    assert name not in engine.scheduler.requests


def fails(*_: Any, **__: Any) -> None:
    raise LookupError("of ours")


def began(engine):
    engine.ours.began = fails


def ends(engine):
    engine.ours.ends = fails


def ended(engine):
    engine.ours.ended = fails


def tick(engine):
    engine.ours.tick = fails


def room(engine):
    # It is called within vLLM's own hands, which only the queue can tell of.
    engine.ours.queue.make_room = fails


def told(engine):
    engine.ours.told = fails
    EngineCore.tenuto_told(SimpleNamespace(scheduler=engine.scheduler), "{}")


@pytest.mark.parametrize("what", [began, ends, ended, tick, room, told], ids=lambda f: f.__name__)
def test_an_error_of_ours_ends_the_retention_and_nothing_else(caplog, what):
    stock, ours = (engine_of(one, kind=VirtualEngine) for one in (AsyncScheduler, TurnScheduler))
    contexts = [some_tokens(480, number) for number in range(5)]
    for engine in (stock, ours):
        for number, tokens in enumerate(contexts):
            ask(engine, tokens, f"session-{number}")
    assert ours.ours.state()["leased"] >= 145
    what(ours)
    dry = 170 * ours.block_size if what is room else 480
    for engine in (stock, ours):
        ask(engine, some_tokens(dry, "next"), "session-next")
        ask(engine, some_tokens(480, "after"), "session-after")
    [why] = reasons(caplog)
    assert why == (
        "RuntimeError: the order of the blocks was given up"
        if what is room
        else "LookupError: of ours"
    )
    assert ours.scheduler.tenuto is None
    check(ours.ours.queue)
    # Enough for all blocks to have gone once in the order of LRU, a few at a time.
    for engine in (stock, ours):
        for number in range(12):
            ask(engine, some_tokens(480, f"flood {number}"))
    # What was leased holds no room: these fit beside each other into the whole pool alone.
    again = [some_tokens(480, f"again {number}") for number in range(6)]
    asked = [*contexts, *again, *again]
    found = [[ask(engine, tokens) for tokens in asked] for engine in (stock, ours)]
    assert found[0] == found[1]
    assert found[0][-6:] == [464] * 6
    assert served(ours)[1] == served(stock)[1]
    assert len(reasons(caplog)) == 1
    assert ours.pool.get_num_free_blocks() == POOL - 1


@pytest.mark.parametrize("late", [True, False], ids=["asynchronous", "synchronous"])
def test_the_scheduler_is_the_one_that_the_configuration_takes(late):
    kinds = type(engine_of(TurnScheduler, late=late).scheduler).__mro__
    assert TurnMixin in kinds
    assert Scheduler in kinds
    assert (AsyncScheduler in kinds) is late


class Mine(TurnMixin, AsyncScheduler):
    """As docs/retention.md shows it, with something of its own."""

    steps = 0

    def schedule(self, *args, **kwargs):
        self.steps += 1
        return super().schedule(*args, **kwargs)


def test_a_scheduler_of_ones_own_leases_as_well(caplog):
    mine, ours = engine_of(Mine), engine_of(TurnScheduler)
    assert served(mine) == served(ours) != of_stock()
    assert mine.scheduler.steps > 60
    assert mine.ours.state()["counts"] == ours.ours.state()["counts"]
    assert mine.ours.state()["leased"] > 0
    assert not reasons(caplog)
