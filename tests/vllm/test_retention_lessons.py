"""What a segmented queue can get wrong, each as a test of its kind."""

from __future__ import annotations

import pytest

# First: it silences what vLLM's import warns of.
from benchmarks.retention.virtual import AsyncScheduler

from .asking import answer, chat, engine_of, hint, leased, some_tokens


def test_a_session_that_ends_leaves_nothing_of_its_earlier_turns_leased():
    engine = engine_of()
    first = answer(engine, some_tokens(800), hint("session-a"))
    for turn in range(4):
        # A history edited near its beginning: most blocks of the last turn are in no prompt.
        edited = first.tokens[:64] + some_tokens(600, turn)
        answer(engine, edited, hint("session-a"))
    assert leased(engine) > 0
    engine.tell(ended=["session-a"])
    engine.check()
    assert leased(engine) == 0


def test_a_turn_that_supersedes_another_gives_its_blocks_up_first():
    engine = engine_of()
    first = answer(engine, some_tokens(800), hint("session-a"))
    answer(engine, first.tokens[:64] + some_tokens(900, 1), hint("session-a", phase="compact"))
    assert engine.ours.state()["evict_first"] >= 40


def test_sessions_that_never_got_a_block_leave_no_record_that_grows(monkeypatch):
    monkeypatch.setenv("TENUTO_SESSIONS", "16")
    engine = engine_of()
    for number in range(300):
        name = engine.submit(some_tokens(200), 4, hint=hint(f"session-{number}"))
        if number % 2:
            engine.step()
        engine.abort(name)
    engine.step()
    state = engine.ours.state()
    assert state["sessions"] <= 16
    assert state["leased"] == state["leases"] == 0


def test_a_reset_that_fails_forgets_nothing_and_one_that_succeeds_forgets_all():
    engine = engine_of()
    turn = answer(engine, some_tokens(800), hint("session-a"))
    before = leased(engine)
    running = engine.submit(some_tokens(100, 1), 50)
    engine.step()
    assert not engine.scheduler.reset_prefix_cache()
    engine.check()
    assert leased(engine) == before > 0
    while engine.asks[running].done_s is None:
        engine.step()
    engine.drain()
    again = answer(engine, turn.tokens + some_tokens(20), hint("session-a"))
    assert again.cached == 800
    assert engine.scheduler.reset_prefix_cache()
    engine.check()
    assert leased(engine) == 0
    assert answer(engine, again.tokens, hint("session-a")).cached == 0


def test_who_returns_last_goes_first_also_when_the_pool_runs_dry():
    engine = engine_of()
    soon = answer(engine, some_tokens(800, 1), hint("session-soon", gap=3_000))
    late = answer(engine, some_tokens(800, 2), hint("session-late", gap=300_000))
    mid = answer(engine, some_tokens(800, 3), hint("session-mid", gap=30_000))
    # Under the budget: 153 of 199 blocks are leased, and the chat takes 90.
    chat(engine, 90)
    assert answer(engine, soon.tokens, hint("session-soon")).cached == 800
    assert answer(engine, mid.tokens, hint("session-mid")).cached == 800
    assert answer(engine, late.tokens, hint("session-late")).cached < 800


def test_without_gaps_the_youngest_goes_first_also_when_the_pool_runs_dry():
    engine = engine_of()
    turns = [answer(engine, some_tokens(800, i), hint(f"session-{i}")) for i in range(3)]
    chat(engine, 90)
    cached = [
        answer(engine, turn.tokens, hint(f"session-{i}")).cached for i, turn in enumerate(turns)
    ]
    assert cached[:2] == [800, 800]
    assert cached[2] < 800


def test_a_pool_that_runs_dry_takes_from_the_leased_in_batches():
    engine = engine_of(blocks=1001)
    for number in range(18):
        answer(engine, some_tokens(785, number), hint(f"session-{number}"), most=15)
    assert leased(engine) > 850
    running = engine.submit(some_tokens(100 * engine.block_size, "running"), 3000)
    dry = 0
    while not dry:
        engine.step()
        dry = engine.ours.state()["counts"]["lost"]
    # So many blocks are to be had before sessions are put in order again.
    assert engine.ours.state()["ordinary"] >= (1001 >> 6) - 1
    engine.abort(running)


def test_leases_that_ran_out_in_an_idle_engine_hold_nothing_up():
    engine = engine_of()
    turn = answer(engine, some_tokens(2600), hint("session-a", ttl=30))
    assert leased(engine) > 160
    engine.now_s += 31
    wanted = engine.submit(some_tokens(2600, 1), 4)
    engine.step()
    assert leased(engine) == 0
    assert engine.ours.state()["counts"]["expired"] == 1
    while engine.asks[wanted].done_s is None:
        engine.step()
    engine.drain()
    assert answer(engine, turn.tokens, hint("session-a")).cached < 2600


HYBRID = pytest.mark.parametrize(
    ("kind", "interval"),
    [("window", 0), ("window", None), ("mamba", 0), ("mamba", None)],
    ids=["window", "window, dense", "mamba", "mamba, dense"],
)


@HYBRID
def test_a_state_that_left_its_request_early_is_kept_with_the_other_blocks(kind, interval):
    how = {"kind": kind, "interval": interval}
    stock, ours = engine_of(AsyncScheduler, **how), engine_of(**how)
    for engine in (stock, ours):
        turn = answer(engine, some_tokens(600), hint("session-a"), most=40)
        for seed in range(5):
            chat(engine, 50, seed + 1)
        back = answer(engine, turn.tokens + some_tokens(50, 2), hint("session-a"))
        # The last sampled token is in no cache; the state at the answer's end is.
        assert back.cached == (0 if engine is stock else 624)
