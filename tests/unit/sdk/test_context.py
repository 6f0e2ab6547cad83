"""Scopes say which session a call belongs to, and leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextvars import copy_context

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tenuto
from tenuto.context import Scope, current_session


def here() -> str | None:
    session = current_session()
    return session.session_id if session else None


def test_a_nested_agent_has_the_enclosing_one_as_parent_and_a_path_as_label() -> None:
    with tenuto.run() as run, run.agent("planner") as planner, run.agent("search") as search:
        assert search.agent == "planner/search"
        session = current_session()
        assert session is not None
        assert session.parent is not None
        assert session.parent.session_id == planner.session_id


def test_parallel_instances_of_one_agent_are_different_sessions() -> None:
    run = tenuto.run()
    ids = {run.agent("search", instance=i).session_id for i in (0, 1, "call_abc")}
    assert len(ids) == 3
    assert run.agent("search").session_id == run.agent("search", instance=0).session_id


def test_an_agent_of_another_run_is_not_the_child_of_the_agent_around_it() -> None:
    with tenuto.run() as outer, outer.agent("planner"):
        other = tenuto.run()
        assert other.agent("x").agent == "x"


orders = st.lists(st.integers(0, 5), max_size=12).flatmap(
    lambda opened: st.tuples(st.just(opened), st.permutations(opened))
)


@given(orders)
def test_scopes_closed_in_any_order_leave_no_session_behind(
    order: tuple[list[int], list[int]],
) -> None:
    opened, closed = order
    run = tenuto.run()
    scopes: list[Scope] = [run, *(run.agent(str(i)) for i in range(5))]
    for i in opened:
        scopes[i].__enter__()
    seen = []
    for left, i in enumerate(closed):
        seen.append((here(), {scopes[j].session_id for j in closed[left:]}))
        scopes[i].__exit__(None, None, None)
    assert here() is None
    assert all(current in inside for current, inside in seen)


def test_leaving_a_scope_that_was_never_entered_changes_nothing() -> None:
    with tenuto.run() as run:
        tenuto.run().__exit__(None, None, None)
        assert here() == run.session_id


def test_an_error_passes_through_a_scope_and_closes_it() -> None:
    with pytest.raises(ZeroDivisionError), tenuto.run() as run, run.agent("planner"):
        _ = 1 // 0
    assert here() is None


@pytest.mark.anyio
async def test_concurrent_tasks_may_enter_one_scope_object_at_once() -> None:
    run = tenuto.run()
    planner = run.agent("planner")
    met = asyncio.Barrier(3)

    async def work() -> list[str | None]:
        async with planner:
            await met.wait()
            inside = here()
        return [inside, here()]

    results = await asyncio.gather(*(work() for _ in range(3)))
    assert results == [[planner.session_id, None]] * 3


@pytest.mark.anyio
async def test_a_generator_collected_in_another_task_neither_raises_nor_leaks() -> None:
    async def answers(run: tenuto.Run) -> AsyncIterator[int]:
        with run.agent("generator"):
            yield 1
            yield 2

    async def pull_one() -> AsyncIterator[int]:
        stream = answers(tenuto.run())
        await anext(stream)
        return stream

    stream = await asyncio.create_task(pull_one())
    await stream.aclose()  # type: ignore[attr-defined]
    gc.collect()
    assert here() is None


@pytest.mark.anyio
async def test_a_scope_left_in_another_task_is_left_everywhere() -> None:
    agent = tenuto.run().agent("planner")
    agent.__enter__()
    assert here() == agent.session_id

    async def leave() -> None:
        agent.__exit__(None, None, None)

    await asyncio.create_task(leave())
    assert here() is None


def test_a_scope_left_by_a_stranger_closes_nobody_elses_entering() -> None:
    agent = tenuto.run().agent("planner")
    one, two = copy_context(), copy_context()
    one.run(agent.__enter__)
    two.run(agent.__enter__)
    copy_context().run(agent.__exit__, None, None, None)
    assert [one.run(here), two.run(here)] == [agent.session_id] * 2
    one.run(agent.__exit__, None, None, None)
    assert [one.run(here), two.run(here)] == [None, agent.session_id]


@pytest.mark.anyio
async def test_a_generator_broken_off_leaves_its_consumer_in_no_session_once_it_is_closed() -> None:
    async def answers() -> AsyncIterator[int]:
        async with tenuto.run().agent("generator"):
            yield 1
            yield 2

    stream = answers()
    async for _ in stream:
        break
    await asyncio.create_task(stream.aclose())  # type: ignore[attr-defined]
    assert here() is None


@pytest.mark.anyio
async def test_what_keeps_a_copy_of_a_context_is_in_no_session_after_the_scope() -> None:
    release = asyncio.Event()

    async def outlive() -> list[str | None]:
        before = here()
        await release.wait()
        return [before, here()]

    with tenuto.run() as run:
        task = asyncio.create_task(outlive())
        await asyncio.sleep(0)
    release.set()
    assert await task == [run.session_id, None]


def test_thousands_of_scopes_may_be_open_and_closed_first_in_first_out() -> None:
    run = tenuto.run()
    scopes = [run.agent(str(i)) for i in range(5000)]
    for scope in scopes:
        scope.__enter__()
    for scope in scopes:
        scope.__exit__(None, None, None)
    assert here() is None


@pytest.mark.anyio
async def test_threads_started_with_to_thread_are_in_the_session() -> None:
    with tenuto.run() as run, run.agent("planner") as planner:
        assert await asyncio.to_thread(here) == planner.session_id
