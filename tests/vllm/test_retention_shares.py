"""What may be leased at most, in all and of each tenant, and of how many sessions it is known."""

from __future__ import annotations

import gc
from collections import Counter
from types import FunctionType, ModuleType

import pytest

# First: it silences what vLLM's import warns of.
from benchmarks.retention.virtual import VirtualEngine
from tenuto_vllm import _wire
from tenuto_vllm.engine.leases import Leases
from tenuto_vllm.retention.hint import Hint, pack

from .asking import answer, chat, engine_of, leased, some_tokens

POOL = 640
BATCH = POOL >> 6
KEPT = 29
"""Full blocks of a turn of `turns`."""

# Of a tenant that wants all there is.
GREEDY = {"prio": 8, "ttl": 99_999_999}


def hint(session: str, parent: str = "", **turn) -> str:
    return pack(Hint(session, parent=parent, turn=_wire.Turn(**{"next": "tool", **turn})))


def by_tenant(engine: VirtualEngine) -> Counter[str]:
    """Return the blocks that are leased, by the tenant whose they are."""
    sizes: Counter[str] = Counter()
    chain = None
    queue = engine.ours.queue
    block = queue._last
    while (block := block.next_free_block) is not queue.fake_free_list_tail:
        if block.block_id < 0:
            chain = block.chain
        else:
            sizes[chain.lease.tenant] += 1
    return sizes


def turns(engine: VirtualEngine, tenant: str, many: int, **turn) -> dict[str, list[int]]:
    """Let sessions of a tenant have a turn of `KEPT` full blocks each."""
    asked = {f"{tenant}.session-{i}": some_tokens(470, f"{tenant}{i}") for i in range(many)}
    for name, tokens in asked.items():
        answer(engine, tokens, hint(name, **turn), most=2)
    return asked


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_leases_hold_no_more_than_their_share(monkeypatch, share):
    monkeypatch.setenv("TENUTO_LEASE_SHARE", str(share))
    engine = engine_of(blocks=POOL)
    for tenant in "abc":
        turns(engine, tenant, 12)
        assert leased(engine) <= share * POOL + BATCH
    # It is used as well.
    assert leased(engine) >= share * POOL - 2 * KEPT
    assert engine.ours.state()["counts"]["demoted"]


def test_a_share_of_nothing_leases_nothing_for_long(monkeypatch):
    monkeypatch.setenv("TENUTO_LEASE_SHARE", "0")
    engine = engine_of(blocks=POOL)
    for number in range(30):
        answer(engine, some_tokens(30 + 15 * number, number), hint(f"session-{number}"), most=2)
        assert leased(engine) <= BATCH


def test_each_tenant_has_a_share_of_its_own(monkeypatch):
    monkeypatch.setenv("TENUTO_TENANT_SHARE", "0.4")
    engine = engine_of(blocks=POOL)
    for _ in range(2):
        for tenant in "ab":
            turns(engine, tenant, 15)
            sizes = by_tenant(engine)
            assert max(sizes.values()) <= 0.4 * POOL + BATCH
    assert sizes.keys() == {"a", "b"}
    assert min(sizes.values()) >= 0.4 * POOL - 2 * KEPT


def test_a_tenant_that_wants_everything_takes_no_more_than_its_share(monkeypatch):
    monkeypatch.setenv("TENUTO_TENANT_SHARE", "0.4")
    engine = engine_of(blocks=POOL)
    modest = turns(engine, "b", 6)
    for _ in range(2):
        turns(engine, "a", 30, **GREEDY)
        assert by_tenant(engine)["a"] <= 0.4 * POOL + BATCH
    # Within its share, and a fifth of the pool is nobody's.
    assert by_tenant(engine)["b"] == 6 * KEPT
    for name, tokens in modest.items():
        assert answer(engine, tokens, hint(name), most=2).cached == 16 * KEPT


def test_a_lease_that_its_client_wants_for_ever_ends_after_ten_minutes():
    engine = engine_of(blocks=POOL)
    turns(engine, "a", 3, **GREEDY)
    engine.now_s += 590
    engine.step()
    assert leased(engine) == 3 * KEPT
    engine.now_s += 20
    engine.step()
    assert leased(engine) == 0


def test_what_an_heir_gets_counts_within_the_share(monkeypatch):
    monkeypatch.setenv("TENUTO_LEASE_SHARE", "0.5")
    engine = engine_of(blocks=POOL)
    tokens = some_tokens(190 * 16)
    answer(engine, tokens, hint("parent", prio=-8), most=1)
    # The parent gives way first, and its child has all that it gives.
    answer(engine, tokens + some_tokens(190 * 16, "fork"), hint("child", "parent"), most=1)
    assert leased(engine) <= 0.5 * POOL + BATCH


def test_a_turn_that_is_aborted_does_not_take_the_leases_over_their_share(monkeypatch):
    monkeypatch.setenv("TENUTO_LEASE_SHARE", "0.5")
    engine = engine_of(blocks=POOL)
    asked = turns(engine, "a", 10)
    # What a session in use had does not count, and the others fill the share.
    waits = [engine.submit(tokens, 500, hint=hint(name)) for name, tokens in asked.items()]
    turns(engine, "b", 10)
    for name in waits:
        engine.abort(name)
    engine.step()
    engine.drain()
    assert leased(engine) <= 0.5 * POOL + BATCH


def test_thousands_of_sessions_neither_leak_a_block_nor_a_record(monkeypatch):
    monkeypatch.setenv("TENUTO_SESSIONS", "64")
    engine = engine_of(blocks=POOL)
    known = []
    for number in range(0, 3000, 30):
        live = [
            engine.submit(
                some_tokens(20 + at % 60, at),
                2,
                hint=hint(f"t{at % 7}.session-{at}", f"t{at % 7}.session-{at - 7}", gap=at % 90),
            )
            for at in range(number, number + 30)
        ]
        while any(engine.asks[name].done_s is None for name in live):
            engine.step()
        engine.drain()
        state = engine.ours.state()
        assert state["leases"] <= state["sessions"] <= 64
        if number in (990, 2970):
            known.append(objects_of(engine.ours))
    # A session is some ten objects.
    assert known[1] <= known[0] + 640
    queue = engine.ours.queue
    assert engine.pool.get_num_free_blocks() == POOL - 1
    # The marks of those forgotten are off the list.
    marks, block = 0, queue.fake_free_list_head
    while (block := block.next_free_block) is not queue.fake_free_list_tail:
        marks += block.block_id < 0
    assert marks <= 2 + 2 * 64
    chat(engine, POOL - 10)
    assert not queue.heirs
    assert sum(owner is not None for owner in queue.owners) <= 10


def objects_of(keeper: Leases) -> int:
    """Return how many objects are reachable from a keeper, but for the engine."""
    keeper.clock, clock = float, keeper.clock
    seen, found = {}, [keeper]
    while found:
        one = found.pop()
        if id(one) not in seen and not isinstance(one, (type, FunctionType, ModuleType)):
            seen[id(one)] = one
            found += gc.get_referents(one)
    keeper.clock = clock
    return len(seen)
