"""LangGraph's streams: what the consumer does between two events stays the consumer's."""

from __future__ import annotations

import asyncio
import gc
import itertools
import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

import tenuto
from tenuto.propagate import ctxgen
from tests.frameworks.langchain_model import chat_model
from tests.frameworks.scripted import Model


class State(TypedDict):
    said: Annotated[list[str], operator.add]


def loop_graph(llm: Any, words: str, times: int = 3) -> Any:
    """Return a graph whose one node calls the model `times` times, once for each event."""

    async def node(state: State) -> State:
        answer = await llm.ainvoke(f"{words} {len(state['said'])}")
        return {"said": [answer.text]}

    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_conditional_edges("node", lambda s: END if len(s["said"]) >= times else "node")
    return graph.compile()


def runs_of(model: Model, words: str) -> list[str | None]:
    found = [one for one in model.arrived if one.items[-1]["content"].startswith(words)]
    return [one.headers.get("x-agent-run-id") for one in found]


@pytest.mark.anyio
async def test_a_scope_that_the_consumer_opens_between_events_marks_its_calls_only(
    model: Model,
) -> None:
    llm = chat_model(model)
    async with tenuto.run() as run:
        async for _ in loop_graph(llm, "graph").astream({"said": []}):
            async with tenuto.run() as own:
                await llm.ainvoke("own")
            assert runs_of(model, "own")[-1] == own.run_id
    assert runs_of(model, "graph") == [run.run_id] * 3
    assert len(set(runs_of(model, "own"))) == 3


@pytest.mark.anyio
async def test_a_graph_pulled_in_the_scope_of_another_run_stays_in_its_own(model: Model) -> None:
    """https://github.com/langchain-ai/langsmith-sdk/issues/607

    A generator runs in the context of whoever pulls it, so two that are pulled in turn get
    each other's. `ctxgen` runs each in the context it was made in.
    """
    llm = chat_model(model)
    async with tenuto.run() as run:
        ours = ctxgen(loop_graph(llm, "ours").astream({"said": []}))
        async with tenuto.run() as other:
            theirs = ctxgen(loop_graph(llm, "theirs").astream({"said": []}))
            for _ in range(3):
                await anext(ours)
                await anext(theirs)
            await ours.aclose()
            await theirs.aclose()
    assert runs_of(model, "ours") == [run.run_id] * 3
    assert runs_of(model, "theirs") == [other.run_id] * 3


@pytest.mark.anyio
async def test_every_event_pulled_by_a_task_of_its_own_is_in_the_run(model: Model) -> None:
    """https://github.com/langfuse/langfuse/issues/3961

    Behind a streaming answer the context was gone after the first chunk.
    """
    llm = chat_model(model)
    async with tenuto.run() as run:
        events = ctxgen(loop_graph(llm, "graph").astream({"said": []}))

        async def pull() -> Any:
            return await anext(events, None)

        while await asyncio.create_task(pull()) is not None:
            pass
    assert runs_of(model, "graph") == [run.run_id] * 3


@pytest.mark.parametrize(
    ("end", "guarded"),
    [
        # Of a task started meanwhile only `ctxgen` can tell whose it is.
        ("left open", True),
        *itertools.product(["closed in another task", "collected"], [False, True]),
    ],
)
@pytest.mark.anyio
async def test_a_stream_left_early_leaves_no_run_behind_and_says_nothing(
    end: str, guarded: bool, model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    """https://github.com/langfuse/langfuse/issues/13590

    A scope held open over a yield failed to close in another context, with an error in the
    log; also https://github.com/google/adk-python/issues/4894, an early exit.
    """
    llm = chat_model(model)

    inner = tenuto.run()

    async def answer() -> Any:
        async with inner:
            async for event in loop_graph(llm, "graph").astream({"said": []}):
                yield event

    events: Any = ctxgen(answer()) if guarded else answer()
    async with tenuto.run() as around:
        async for _ in events:
            break
        if end == "closed in another task":
            await asyncio.create_task(events.aclose())
        elif end == "collected":
            del events
            gc.collect()
            await asyncio.sleep(0)
        await llm.ainvoke("own")
    await llm.ainvoke("after")
    assert set(runs_of(model, "graph")) <= {inner.run_id, None}
    # langchain calls in a task of its own. After a scope that was left elsewhere that may
    # count as outliving it; `ctxgen` leaves no doubt.
    assert runs_of(model, "own")[0] in ([around.run_id] if guarded else [around.run_id, None])
    assert runs_of(model, "after") == [None]
    assert [one for one in caplog.records if one.levelname in ("WARNING", "ERROR")] == []


@pytest.mark.anyio
async def test_a_scope_in_the_body_of_a_generator_holds_for_the_graph_that_it_streams(
    model: Model,
) -> None:
    """https://github.com/langfuse/langfuse/issues/3961

    The other way to write such an endpoint: the scope is opened where the answer is made.
    """
    llm = chat_model(model)
    run = tenuto.run()

    async def answer() -> Any:
        async with run:
            async for event in loop_graph(llm, "graph").astream({"said": []}):
                yield event

    async for _ in answer():
        await llm.ainvoke("own")
    await llm.ainvoke("own")
    assert runs_of(model, "graph") == [run.run_id] * 3
    assert runs_of(model, "own")[-1] is None


@pytest.mark.anyio
async def test_a_graph_consumed_after_its_scope_has_ended_is_in_no_run(model: Model) -> None:
    """https://github.com/langfuse/langfuse/issues/3961

    An endpoint returns its stream and its scope ends before anybody has pulled.
    """
    llm = chat_model(model)
    async with tenuto.run():
        events = loop_graph(llm, "graph").astream({"said": []})
    async with tenuto.run() as other:
        await llm.ainvoke("own")
    async for _ in events:
        pass
    assert runs_of(model, "own") == [other.run_id]
    assert runs_of(model, "graph") == [None] * 3
