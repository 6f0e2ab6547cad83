from __future__ import annotations

import asyncio
import math
from contextlib import closing
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto_vllm.embedded import Engine, EngineSettings, RequestError, VirtualClock
from tenuto_vllm.embedded.engine import piece_sizes
from tenuto_vllm.model import EngineView

SLOW = EngineSettings(
    ranks=1, blocks=9, block_size=4, prefill_tokens_per_s=10.0, decode_tokens_per_s=10.0
)


@dataclass
class Served:
    rank: int
    cached_tokens: int
    text: str
    admitted_s: float
    first_s: float
    end_s: float


async def ask(engine: Engine, clock: VirtualClock, prompt, output="ab", rank=None) -> Served:
    with closing(engine.submit(prompt, output, rank)) as generation:
        await generation.admitted()
        times, text = [clock.now()], ""
        async for piece in generation.pieces():
            text += piece
            times.append(clock.now())
    return Served(generation.rank, generation.cached_tokens, text, times[0], times[1], times[-1])


def play(program, engine_settings: EngineSettings = SLOW):
    """Run `program(engine, clock)` and return its result; the engine must end up empty."""

    async def main():
        clock = VirtualClock()
        engine = Engine(engine_settings, clock)
        # Real seconds: a leak shows as a wait without end.
        async with asyncio.timeout(20):
            result = await program(engine, clock)
        for stats in engine.stats():
            assert stats["in_flight"] == 0
            assert stats["free_blocks"] == stats["total_blocks"]
        return result

    return asyncio.run(main())


def test_only_uncached_tokens_take_time_to_prefill():
    async def program(engine, clock):
        return await ask(engine, clock, range(8)), await ask(engine, clock, range(9))

    cold, warm = play(program)
    assert (cold.cached_tokens, cold.text) == (0, "ab")
    assert cold.first_s - cold.admitted_s == pytest.approx(0.8)
    assert warm.cached_tokens == 8
    assert warm.first_s - warm.admitted_s == pytest.approx(0.1)


def test_prefill_is_serial_and_decode_is_parallel():
    async def program(engine, clock):
        prompts = [[n] * 8 for n in range(3)]
        return await asyncio.gather(*(ask(engine, clock, prompt, "abcd") for prompt in prompts))

    first, second, third = play(program)
    assert [s.admitted_s for s in (first, second, third)] == pytest.approx([0, 0.8, 1.6])
    # The second is admitted while the first still decodes, and each decodes for 0.3 s.
    assert [s.end_s for s in (first, second, third)] == pytest.approx([1.1, 1.9, 2.7])


def test_a_request_waits_until_another_gives_its_blocks_back():
    async def program(engine, clock):
        return await asyncio.gather(
            ask(engine, clock, [1] * 20, "a" * 9), ask(engine, clock, [2] * 20, "b")
        )

    big, waiting = play(program)
    assert big.end_s == pytest.approx(2.8)
    assert waiting.admitted_s == pytest.approx(big.end_s)


def test_requests_are_admitted_in_the_order_in_which_they_came():
    async def program(engine, clock):
        served = await asyncio.gather(
            ask(engine, clock, [1] * 20, "a" * 9),
            ask(engine, clock, [2] * 20, "b"),
            ask(engine, clock, [3], "c"),
        )
        return [s.admitted_s for s in served]

    assert play(program) == sorted(play(program))


@pytest.mark.parametrize("seconds", [0.0, 0.4, 0.85, 1.1, 1.9])
def test_a_request_cancelled_at_any_point_leaves_nothing_behind(seconds: float):
    async def program(engine, clock):
        tasks = [asyncio.create_task(ask(engine, clock, [n] * 16, "a" * 8)) for n in range(3)]
        await clock.sleep(seconds)
        for task in tasks[:2]:
            task.cancel()
        assert isinstance(await tasks[2], Served)
        return [type(r) for r in await asyncio.gather(*tasks[:2], return_exceptions=True)]

    assert play(program) == [asyncio.CancelledError] * 2


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 1), min_size=1, max_size=12),
            st.integers(1, 9),
            st.sampled_from([None, 0, 1]),
            st.floats(0, 3),
            st.floats(0, 3),
        ),
        max_size=12,
    )
)
@settings(deadline=None, max_examples=60)
def test_any_mix_of_requests_and_departures_ends_with_all_blocks_free(requests):
    async def one(engine, clock, prompt, length, rank, start_s, stay_s):
        await clock.sleep(start_s)
        task = asyncio.create_task(ask(engine, clock, prompt, "x" * length, rank))
        leave = asyncio.create_task(clock.sleep(stay_s))
        await asyncio.wait({task, leave}, return_when=asyncio.FIRST_COMPLETED)
        task.cancel()
        leave.cancel()
        await asyncio.gather(task, leave, return_exceptions=True)

    async def program(engine, clock):
        await asyncio.gather(*(one(engine, clock, *request) for request in requests))
        return engine.stats()

    sizes = EngineSettings(
        ranks=2, blocks=8, block_size=4, prefill_tokens_per_s=10.0, decode_tokens_per_s=10.0
    )
    stats = play(program, sizes)
    assert sum(s["requests"] for s in stats) == len(requests)


def test_the_same_program_runs_the_same_way_each_time():
    async def program(engine, clock):
        prompts = [[n % 3] * (5 + n) for n in range(8)]
        return await asyncio.gather(*(ask(engine, clock, prompt, "abc") for prompt in prompts))

    two_ranks = EngineSettings(ranks=2, blocks=20, block_size=4, prefill_tokens_per_s=100.0)
    assert play(program, two_ranks) == play(program, two_ranks)


def test_unplaced_requests_alternate_and_a_named_rank_does_not_turn_the_scan():
    async def program(engine, clock):
        named = [None, None, 1, None, None]
        return [(await ask(engine, clock, [n], rank=r)).rank for n, r in enumerate(named)]

    assert play(program, EngineSettings(ranks=2)) == [0, 1, 1, 0, 1]


def test_loads_count_requests_that_wait_and_requests_that_run():
    async def program(engine, clock):
        view: EngineView = engine
        tasks = [asyncio.create_task(ask(engine, clock, [n] * 9, rank=0)) for n in range(3)]
        await clock.sleep(0.1)
        seen = view.ranks(), list(view.loads())
        await asyncio.gather(*tasks)
        return seen, list(view.loads())

    assert play(program, EngineSettings(ranks=2, prefill_tokens_per_s=10.0)) == (
        (2, [3.0, 0.0]),
        [0.0, 0.0],
    )


def test_every_engine_has_an_instance_of_its_own():
    assert len({Engine(SLOW).instance() for _ in range(20)}) == 20


@pytest.mark.parametrize(
    ("prompt", "output", "rank", "says"),
    [
        ([1] * 4, "a", 1, r"data_parallel_rank 1 is out of range \[0, 1\)\."),
        ([1] * 4, "a", -1, r"data_parallel_rank -1 is out of range \[0, 1\)\."),
        ([], "a", None, "prompt is empty"),
        ([1] * 30, "abcd", None, "needs 9 cache blocks of 4 tokens and a rank has 8"),
        ([1] * 32768, "a", None, "maximum context length is 32768 tokens"),
    ],
)
def test_a_request_that_can_never_run_is_refused_at_once(prompt, output, rank, says: str):
    engine = Engine(SLOW)
    with pytest.raises(RequestError, match=says):
        engine.submit(prompt, output, rank)
    assert engine.loads() == [0.0]


def test_a_request_that_just_fits_runs():
    async def program(engine, clock):
        return await ask(engine, clock, [1] * 30, "abc")

    assert play(program).text == "abc"


def test_pieces_need_admission():
    async def program(engine, clock):
        with closing(engine.submit([1] * 8, "a", 0)), closing(engine.submit([2], "a", 0)) as second:
            with pytest.raises(RuntimeError):
                await anext(aiter(second.pieces()))

    play(program)


def test_a_reset_forgets_prefixes():
    async def program(engine, clock):
        await ask(engine, clock, range(8))
        assert engine.reset_prefix_cache()
        return (await ask(engine, clock, range(8))).cached_tokens

    assert play(program) == 0


@given(st.integers(0, 5000), st.floats(0.1, 1e6))
def test_pieces_cover_the_output_and_none_but_the_first_is_shorter_than_2_ms(tokens, rate):
    sizes = piece_sizes(tokens, rate)
    assert sum(sizes) == tokens
    assert len(sizes) <= 2 or min(sizes[1:]) / rate >= 0.002


def test_infinite_speeds_take_no_time():
    async def program(engine, clock):
        return await ask(engine, clock, range(8), "abc")

    fast = EngineSettings(prefill_tokens_per_s=math.inf, decode_tokens_per_s=math.inf)
    assert play(program, fast).end_s == 0


@pytest.mark.parametrize(
    "wrong", [{"ranks": 0}, {"blocks": 1}, {"block_size": 0}, {"decode_tokens_per_s": math.nan}]
)
def test_settings_out_of_range_are_refused(wrong: dict):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        EngineSettings(**wrong)


def test_virtual_sleepers_wake_in_the_order_of_their_deadlines():
    async def main():
        clock, woken = VirtualClock(), []

        async def sleeper(name, seconds):
            await clock.sleep(seconds)
            woken.append((name, clock.now()))

        await asyncio.gather(sleeper("c", 3), sleeper("a", 1), sleeper("b", 1), sleeper("d", 3.5))
        return woken

    assert asyncio.run(main()) == [("a", 1.0), ("b", 1.0), ("c", 3.0), ("d", 3.5)]
