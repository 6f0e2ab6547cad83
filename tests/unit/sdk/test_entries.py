"""A scope that a plain generator holds over its yields is the body's, and not its consumer's."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import copy_context
from typing import Any

import pytest

import tenuto
from tenuto import entries
from tenuto.context import current_session, inherit_session


def here() -> str | None:
    session = current_session()
    return session.session_id if session else None


def items(run: Any, then: Callable[[], Any] = here) -> Iterator[Any]:
    with run:
        for _ in range(3):
            yield then()


async def aitems(run: Any, then: Callable[[], Any] = here) -> AsyncIterator[Any]:
    async with run:
        for _ in range(3):
            await asyncio.sleep(0)
            yield then()


def test_a_consumer_is_never_in_the_scope_of_a_generator_that_it_pulls() -> None:
    for outer in (contextlib.nullcontext(), tenuto.run()):
        with outer as own:
            inner = tenuto.run()
            for seen in items(inner):
                assert seen == inner.session_id
                assert here() == (own.session_id if own else None)
            stopped = items(inner)
            next(stopped)
            assert here() == (own.session_id if own else None)
            stopped.close()  # type: ignore[attr-defined]


def test_generators_that_take_turns_and_their_consumers_scopes_never_mix() -> None:
    left, right, own = (tenuto.run() for _ in range(3))
    one, two = items(left), items(right)
    for _ in range(3):
        with own:
            assert next(one) == left.session_id
            with own.agent("a") as agent:
                assert next(two) == right.session_id
                assert here() == agent.session_id
    assert here() is None


def test_a_generator_without_a_scope_of_its_own_is_in_that_of_who_pulls_it() -> None:
    source = items(contextlib.nullcontext())
    for run in (tenuto.run(), tenuto.run()):
        with run:
            assert next(source) == run.session_id
    assert next(items(run, lambda: next(source))) == run.session_id
    assert here() is None


def test_the_innermost_body_that_runs_decides() -> None:
    outer, middle, inner = (tenuto.run() for _ in range(3))

    def nested() -> list[Any]:
        return [here(), next(items(inner)), here()]

    def delegating() -> Iterator[Any]:
        with outer:
            yield from items(middle, nested)
            yield here()

    expected = [middle.session_id, inner.session_id, middle.session_id]
    assert list(delegating()) == [expected] * 3 + [outer.session_id]


@contextlib.contextmanager
def lent(run: tenuto.Run) -> Iterator[None]:
    with run:
        yield


@contextlib.asynccontextmanager
async def alent(run: tenuto.Run) -> AsyncIterator[None]:
    async with run:
        yield


@pytest.fixture
def fixed() -> Iterator[str]:
    with tenuto.run() as run:
        yield run.session_id


@pytest.fixture
async def afixed() -> AsyncIterator[str]:
    async with tenuto.run() as run:
        yield run.session_id


def test_a_scope_that_a_fixture_opens_is_its_tests(fixed: str) -> None:
    assert here() == fixed


@pytest.mark.anyio
async def test_a_scope_that_an_async_fixture_opens_is_its_tests(afixed: str) -> None:
    assert here() == afixed
    assert await asyncio.create_task(asyncio.to_thread(here)) == afixed


@pytest.mark.anyio
async def test_a_scope_in_a_context_manager_is_of_whoever_enters_that() -> None:
    run, other = tenuto.run(), tenuto.run()
    with lent(run):
        assert here() == run.session_id
        async with alent(other):
            assert here() == other.session_id
        with contextlib.ExitStack() as stack:
            stack.enter_context(other)
            assert here() == other.session_id
            stack.enter_context(lent(run))
            assert here() == run.session_id
    assert here() is None

    class Own:
        def __enter__(self) -> None:
            self.scope = run.agent("own").__enter__()

        def __exit__(self, *_: Any) -> None:
            self.scope.__exit__(None, None, None)

    async def body() -> AsyncIterator[str | None]:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(alent(run))
            yield here()
            with Own():
                yield here()

    with other:
        seen = []
        async for item in body():
            assert here() == other.session_id
            seen.append(item)
    assert seen == [run.session_id, run.agent("own").session_id]


def test_what_a_body_leaves_open_when_it_returns_is_of_whoever_pulled_it() -> None:
    run = tenuto.run()
    with contextlib.ExitStack() as stack:
        opened = list(stack.enter_context(scope) for scope in (run, run.agent("a")))
        assert here() == opened[-1].session_id
    assert here() is None


@pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks begin eagerly from 3.12 on")
@pytest.mark.anyio
async def test_a_task_that_a_body_begins_eagerly_is_in_the_scope_that_it_opens() -> None:
    async def child() -> list[str | None]:
        async with tenuto.run("child"):
            before = here()
            await asyncio.sleep(0)
            return [before, here()]

    async def body() -> AsyncIterator[Any]:
        async with tenuto.run():
            loop = asyncio.get_running_loop()
            yield await asyncio.eager_task_factory(loop, child())  # type: ignore[attr-defined]

    async with tenuto.run():
        assert [item async for item in body()] == [[tenuto.run("child").session_id] * 2]


@pytest.mark.anyio
async def test_what_a_body_starts_is_in_its_scope_unless_that_could_be_a_strangers() -> None:
    async def child() -> str | None:
        await asyncio.sleep(0)
        return here()

    async def body(run: Any) -> AsyncIterator[Any]:
        async with run:
            yield [*await asyncio.gather(child(), child()), await asyncio.to_thread(here)]

    run, other = tenuto.run(), tenuto.run()
    agent = run.agent("a")
    assert [item async for item in body(agent)] == [[agent.session_id] * 3]
    async with run:
        assert [item async for item in body(agent)] == [[agent.session_id] * 3]
    async with other:
        assert [item async for item in body(agent)] == [[None] * 3]
        assert [item async for item in tenuto.ctxgen(body)(agent)] == [[agent.session_id] * 3]


@pytest.mark.anyio
async def test_what_a_consumer_starts_between_two_pulls_is_never_in_another_run() -> None:
    async def child(delay_s: float) -> str | None:
        await asyncio.sleep(delay_s)
        return here()

    started = []
    async with tenuto.run() as own:
        async for _ in aitems(tenuto.run()):
            started += [asyncio.create_task(child(delay)) for delay in (0, 0.001, 0.01)]
            started.append(asyncio.create_task(asyncio.to_thread(here)))
        assert set(await asyncio.gather(*started)) <= {own.session_id, None}


def test_in_doubt_not_even_the_session_of_the_process_is_shown() -> None:
    with tenuto.run() as handed:
        session = current_session()
    inherit_session(session)
    try:
        assert here() == handed.session_id
        seen: list[Any] = []
        with tenuto.run():
            for _ in items(tenuto.run()):
                context = copy_context()
                thread = threading.Thread(target=lambda: seen.append(context.run(here)))  # noqa: B023
                thread.start()
                thread.join()
        for item in items(contextlib.nullcontext()):
            assert item == here() == handed.session_id
    finally:
        inherit_session(None)
    assert seen == [None] * 3


@pytest.mark.anyio
async def test_a_body_that_ends_elsewhere_leaves_no_one_elses_entering_of_its_scope() -> None:
    agent = tenuto.run().agent("a")

    async def pull(source: Any) -> None:
        await anext(source)

    source: Any = aitems(agent)
    await asyncio.create_task(pull(source))
    with agent:
        await source.aclose()
        assert here() == agent.session_id
    assert here() is None
    assert agent._entries == {}


def test_scopes_that_overlap_for_ever_keep_no_chain() -> None:
    opened = [tenuto.run() for _ in range(3)]
    for scope in opened:
        scope.__enter__()
    for _ in range(1000):
        opened.append(tenuto.run())
        opened[-1].__enter__()
        opened.pop(0).__exit__(None, None, None)
    length, entry = 0, entries._CURRENT.get()
    while entry is not None:
        length, entry = length + 1, entry.previous
    for scope in opened:
        scope.__exit__(None, None, None)
    assert length <= 6
    assert here() is None


def test_a_generator_that_is_dropped_is_closed_at_once_and_frees_what_it_held() -> None:
    class Held:
        pass

    def body() -> Iterator[None]:
        held = Held()
        refs.append(weakref.ref(held))
        with tenuto.run():
            yield

    def closed_in_a_thread(source: Any) -> None:
        thread = threading.Thread(target=source.close)
        thread.start()
        thread.join()

    refs: list[Any] = []
    gc.disable()
    try:
        for end in (lambda _: None, closed_in_a_thread):
            source = body()
            next(source)
            end(source)
            del source
            assert refs[-1]() is None
    finally:
        gc.enable()
    assert here() is None
