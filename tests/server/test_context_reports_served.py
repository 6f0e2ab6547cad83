"""Public reports of identity lost in web servers' streams, each as a test of its kind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

import tenuto
from tests.asking import aask, aclient, ask, client, sessions
from tests.loopback import Recorder, eventually, serving

ITEMS = 3


class PassThrough(BaseHTTPMiddleware):
    """Consumes each answer in a task of its own, as many programs' middleware does."""

    async def dispatch(self, request: Request, call_next: Any) -> Any:
        return await call_next(request)


@contextlib.contextmanager
def program(recorder: Recorder, endpoint: Callable[..., Any], *, wrapped: bool) -> Iterator[str]:
    """Serve an agent program: `endpoint(request, llm, sync_llm)` behind one route."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        async with clients["async"]:
            yield

    async def handle(request: Request) -> Any:
        return await endpoint(request, clients["async"], clients["sync"])

    with serving(recorder) as url, client(url) as sync_llm:
        clients: dict[str, Any] = {"async": aclient(url), "sync": sync_llm}
        middleware = [Middleware(PassThrough)] if wrapped else []
        app = Starlette(routes=[Route("/{name}", handle)], middleware=middleware, lifespan=lifespan)
        with serving(app) as root:
            yield root


def expected(*names: str, items: int = ITEMS) -> dict[str, str]:
    return {
        f"{name} {item}": tenuto.run(name).agent("writer").session_id
        for name in names
        for item in range(items)
    }


def stream_made_in_a_scope(request: Request, llm: Any, sync_llm: Any) -> Any:
    @tenuto.ctxgen
    async def stream(name: str) -> AsyncIterator[str]:
        for item in range(ITEMS):
            yield await aask(llm, f"{name} {item}")

    name = request.path_params["name"]
    with tenuto.run(name) as run, run.agent("writer"):
        return StreamingResponse(stream(name))


def sync_stream_made_in_a_scope(request: Request, llm: Any, sync_llm: Any) -> Any:
    @tenuto.ctxgen
    def stream(name: str) -> Iterator[str]:
        for item in range(ITEMS):
            yield ask(sync_llm, f"{name} {item}")

    name = request.path_params["name"]
    with tenuto.run(name) as run, run.agent("writer"):
        return StreamingResponse(stream(name))


def stream_that_opens_its_scope(way: Callable[..., Any]) -> Callable[..., Any]:
    def endpoint(request: Request, llm: Any, sync_llm: Any) -> Any:
        async def stream(name: str) -> AsyncIterator[str]:
            with tenuto.run(name) as run, run.agent("writer"):
                for item in range(ITEMS):
                    yield await aask(llm, f"{name} {item}")

        return StreamingResponse(way(stream)(request.path_params["name"]))

    return endpoint


def sync_stream_that_opens_its_scope(request: Request, llm: Any, sync_llm: Any) -> Any:
    @tenuto.ctxgen
    def stream(name: str) -> Iterator[str]:
        with tenuto.run(name) as run, run.agent("writer"):
            for item in range(ITEMS):
                yield ask(sync_llm, f"{name} {item}")

    return StreamingResponse(stream(request.path_params["name"]))


ENDPOINTS = {
    "made in a scope": stream_made_in_a_scope,
    "sync, made in a scope": sync_stream_made_in_a_scope,
    "opens its scope": stream_that_opens_its_scope(tenuto.ctxgen),
    "opens its scope, plain": stream_that_opens_its_scope(lambda stream: stream),
    "sync, opens its scope": sync_stream_that_opens_its_scope,
}


def awaited(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    async def handle(*args: Any) -> Any:
        return endpoint(*args)

    return handle


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "middleware"])
@pytest.mark.parametrize("name", ENDPOINTS)
def test_each_call_of_a_streamed_answer_is_in_the_session_of_its_request(
    name: str, wrapped: bool
) -> None:
    """https://github.com/langfuse/langfuse/issues/3961
    https://github.com/unclecode/crawl4ai/pull/1922

    The server pulls an endpoint's generator after the handler has returned, and in tasks or
    threads of its own: the context is gone after the first chunk, or `reset(token)` fails.
    """
    recorder = Recorder()
    with program(recorder, awaited(ENDPOINTS[name]), wrapped=wrapped) as root:
        for one in ("first", "second"):
            assert httpx.get(f"{root}/{one}").status_code == 200
    assert sessions(recorder) == expected("first", "second")


@pytest.mark.anyio
async def test_streams_that_are_answered_at_once_never_mix() -> None:
    names = [f"request-{i}" for i in range(8)]
    for name, endpoint in ENDPOINTS.items():
        recorder = Recorder()
        with program(recorder, awaited(endpoint), wrapped="plain" in name) as root:
            async with httpx.AsyncClient() as browser:
                await asyncio.gather(*(browser.get(f"{root}/{one}") for one in names))
        assert sessions(recorder) == expected(*names), name


def test_a_plain_stream_that_outlives_its_scope_is_unmarked_and_never_a_strangers() -> None:
    async def endpoint(request: Request, llm: Any, _: Any) -> Any:
        async def stream(name: str) -> AsyncIterator[str]:
            for item in range(ITEMS):
                yield await aask(llm, f"{name} {item}")

        name = request.path_params["name"]
        async with tenuto.run(name):
            await aask(llm, f"{name} in the handler")
            return StreamingResponse(stream(name))

    recorder = Recorder()
    with program(recorder, endpoint, wrapped=False) as root:
        httpx.get(f"{root}/a")
    said = sessions(recorder)
    assert said.pop("a in the handler") == tenuto.run("a").session_id
    assert said == {f"a {item}": None for item in range(ITEMS)}


@pytest.mark.parametrize("way", [lambda stream: stream, tenuto.ctxgen], ids=["plain", "ctxgen"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "middleware"])
def test_a_client_that_hangs_up_leaves_nothing_to_the_next(
    way: Callable[..., Any], wrapped: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """https://github.com/openai/openai-agents-python/issues/634

    A streamed run is consumed in another task than the one that began it, and the client hangs
    up: the run's end fails with a token error, and its trace stays current.
    """

    async def endpoint(request: Request, llm: Any, _: Any) -> Any:
        async def stream(name: str) -> AsyncIterator[str]:
            async with tenuto.run(name) as run, run.agent("writer"):
                try:
                    for item in range(ITEMS if name == "stays" else 10_000):
                        yield await aask(llm, f"{name} {item}") + " " * 65_536
                finally:
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.sleep(0)
                    at_the_end.append(tenuto.inject())

        async def events(name: str) -> AsyncIterator[str]:
            queue: asyncio.Queue[str | None] = asyncio.Queue(1)

            async def work() -> None:
                async for item in way(stream)(name):
                    await queue.put(item)
                await queue.put(None)

            task = asyncio.create_task(work())
            # A loop alone does not keep its tasks.
            working.add(task)
            try:
                while (item := await queue.get()) is not None:
                    yield item
            finally:
                task.cancel()

        return StreamingResponse(events(request.path_params["name"]))

    at_the_end: list[dict[str, str]] = []
    working: set[asyncio.Task[None]] = set()
    recorder = Recorder()
    with program(recorder, endpoint, wrapped=wrapped) as root:
        with httpx.stream("GET", f"{root}/leaves") as answer:
            next(answer.iter_raw())
        # What the server has dropped may be left to the collector.
        assert eventually(lambda: gc.collect() >= 0 and len(at_the_end) == 1)
        assert httpx.get(f"{root}/stays").status_code == 200
    said = sessions(recorder)
    leaver = tenuto.run("leaves").agent("writer").session_id
    assert {said.pop(words) for words in list(said) if words.startswith("leaves")} == {leaver}
    assert said == expected("stays")
    assert leaver in at_the_end[0]["tenuto-context"]
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


def test_the_session_of_a_request_is_on_the_wire_of_the_work_it_gives_away() -> None:
    """https://github.com/OpenHands/software-agent-sdk/pull/1780

    The session id is set in the request's task and the work runs in an executor, which does not
    see it; tests with mocks passed. What counts is the header that the model server gets.
    """

    async def endpoint(request: Request, _: Any, llm: Any) -> Any:
        def work(words: str) -> None:
            with run.agent("writer"):
                ask(llm, words)

        name = request.path_params["name"]
        loop = asyncio.get_running_loop()
        with tenuto.run(name) as run, tenuto.ContextExecutor() as pool:
            await loop.run_in_executor(pool, ask, llm, f"{name} pool")
            await loop.run_in_executor(None, tenuto.propagate(ask), llm, f"{name} propagated")
            await loop.run_in_executor(None, ask, llm, f"{name} plain")
        later = BackgroundTask(tenuto.propagate(ask), llm, f"{name} outlived")
        with run:
            task = BackgroundTask(work, f"{name} 0")
        answer = JSONResponse({}, background=task)
        await later()
        return answer

    recorder = Recorder()
    with program(recorder, endpoint, wrapped=False) as root:
        for name in ("a", "b"):
            httpx.get(f"{root}/{name}")
        assert eventually(lambda: len(recorder.arrived) == 10)
    said = sessions(recorder)
    for name in ("a", "b"):
        own = tenuto.run(name).session_id
        assert said.pop(f"{name} pool") == said.pop(f"{name} propagated") == own
        assert said.pop(f"{name} plain") is said.pop(f"{name} outlived") is None
    assert said == expected("a", "b", items=1)
