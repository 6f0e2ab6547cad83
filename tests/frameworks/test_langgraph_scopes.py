"""Whose a call is where graphs, scopes, threads and streams meet in unusual ways."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.callbacks import CallbackManager
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableConfig, RunnableLambda
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

import tenuto
from tenuto import process
from tenuto.adapters import langgraph
from tests.frameworks.scripted import Model
from tests.frameworks.test_langgraph_adapter import (
    NOTHING,
    State,
    asks,
    asks_async,
    chain,
    chat,
    of,
    run_of,
    session,
)


def thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


def runs_of(model: Model, words: str) -> list[str | None]:
    return [run_of(asked) for asked in of(model, words)]


@pytest.mark.parametrize("saver", [None, InMemorySaver()], ids=["kept", "not kept"])
def test_a_scope_in_a_node_holds_for_a_graph_with_a_thread_of_its_own(
    saver: Any, model: Model
) -> None:
    inner = chain(("search", asks(chat(model), "search")), checkpointer=saver)

    def node(state: State) -> State:
        with tenuto.run("of the node"):
            inner.invoke(NOTHING, thread("own"))
        return NOTHING

    graph = chain(("calls", node))
    graph.invoke(NOTHING)
    with tenuto.run():
        graph.invoke(NOTHING)
    assert runs_of(model, "search") == [tenuto.run("of the node").run_id] * 2


def test_a_scope_in_a_threads_bare_context_holds_for_what_gets_the_nodes_config(
    model: Model,
) -> None:
    llm = chat(model)
    inner = chain(("search", asks(llm, "search")))
    lone = RunnableLambda(lambda _: llm.invoke("lone"))

    def node(state: State, config: RunnableConfig) -> State:
        def work(number: int) -> None:
            with tenuto.run(f"job {number}"):
                inner.invoke(NOTHING, config)
                lone.invoke("", config)

        with ThreadPoolExecutor(1) as pool:
            list(pool.map(work, range(3)))
        return NOTHING

    with tenuto.run():
        chain(("calls", node)).invoke(NOTHING)
    expected = [tenuto.run(f"job {number}").run_id for number in range(3)]
    assert runs_of(model, "search") == runs_of(model, "lone") == expected


@pytest.mark.anyio
async def test_a_node_that_pulls_a_stream_may_open_scopes_meanwhile(model: Model) -> None:
    llm = chat(model)
    inner = chain(*((name, asks_async(llm, name)) for name in ("one", "two", "three")))

    async def consumer(_: Any) -> Any:
        async for _ in inner.astream(NOTHING):
            tenuto.run("of the consumer").__enter__()
        return NOTHING

    with tenuto.run() as run:
        await RunnableLambda(consumer).ainvoke("")
        await chain(("consumes", consumer)).ainvoke(NOTHING)
    assert [run_of(asked) for asked in model.arrived] == [run.run_id] * 6


def test_a_manager_of_callbacks_that_is_used_again_carries_no_run_along(model: Model) -> None:
    graph = chain(("search", asks(chat(model), "search")))
    with tenuto.run("first") as first:
        manager = CallbackManager.configure([])
        graph.invoke(NOTHING, {"callbacks": manager})
    for _ in range(2):
        graph.invoke(NOTHING, {"callbacks": manager})
    with tenuto.run("last") as last:
        graph.invoke(NOTHING, {"callbacks": manager})
    runs = runs_of(model, "search")
    assert (runs[0], runs[3]) == (first.run_id, last.run_id)
    assert len(set(runs)) == 4
    assert None not in runs


@pytest.mark.parametrize("config", [thread("kept"), {}], ids=["thread", "neither"])
def test_what_a_node_leaves_running_is_in_no_run_once_its_graph_is_over(
    config: Any, model: Model
) -> None:
    """https://github.com/NousResearch/hermes-agent/issues/81730

    A store or worker that a node starts serves other threads later, in the context of the first.
    """
    llm = chat(model)
    go, over = threading.Event(), threading.Event()

    def worker() -> None:
        go.wait(10)
        llm.invoke("late")
        over.set()

    def node(state: State) -> State:
        carried = tenuto.propagate(worker)
        threading.Thread(target=carried, daemon=True).start()
        return {"said": [llm.invoke("own").text]}

    chain(("starts", node), checkpointer=InMemorySaver() if config else None).invoke(
        NOTHING, config
    )
    go.set()
    assert over.wait(10)
    assert runs_of(model, "late") == [None]
    assert None not in runs_of(model, "own")


@pytest.mark.anyio
async def test_what_outlives_a_scope_in_a_node_is_in_no_run_while_the_graph_goes_on(
    model: Model,
) -> None:
    llm = chat(model)
    go = asyncio.Event()

    async def late() -> None:
        await go.wait()
        await llm.ainvoke("late")

    async def node(state: State) -> State:
        async with tenuto.run("job"):
            task = asyncio.create_task(late())
        go.set()
        await task
        return {"said": [(await llm.ainvoke("own")).text]}

    graph = chain(("starts", node))
    with tenuto.run() as run:
        await graph.ainvoke(NOTHING)
    assert runs_of(model, "late") == [None]
    assert runs_of(model, "own") == [run.run_id]


def test_sessions_of_nodes_end_with_the_run_that_they_are_in(model: Model) -> None:
    graph = chain(("planner", asks(chat(model), "plan")))
    with tenuto.run() as run:
        graph.invoke(NOTHING)
        state = process.SESSIONS.get(run.agent("planner").session_id)
        assert not state.is_ended
    assert state.is_ended


def test_a_subgraph_that_keeps_its_state_is_below_its_node(model: Model) -> None:
    inner = chain(("search", asks(chat(model), "search")), checkpointer=True)
    graph = chain(("calls", inner), checkpointer=InMemorySaver())
    for _ in range(2):
        graph.invoke(NOTHING, thread("kept"))
    with tenuto.run("kept") as run, run.agent("calls") as calls:
        expected = run.agent("search").session_id
    first, second = of(model, "search")
    assert session(first) == session(second) == expected
    assert first.headers["x-parent-session-id"] == calls.session_id


def test_threads_are_never_taken_for_each_other_or_for_none(model: Model) -> None:
    inner = chain(("search", asks(chat(model), "search")))

    def node(state: State) -> State:
        for name in ("t", "t1"):
            for _ in range(2):
                inner.invoke(NOTHING, thread(name))
        return NOTHING

    with tenuto.run():
        chain(("calls", node)).invoke(NOTHING)
        for name in ("0", None):
            inner.invoke(NOTHING, thread(name) if name else {})
    one, again, other, other_again, zero, none = (session(asked) for asked in of(model, "search"))
    assert (one, other) == (again, other_again)
    assert len({one, other, zero, none}) == 4


@pytest.mark.anyio
async def test_graphs_side_by_side_in_one_scope_are_instances_and_later_ones_go_on(
    model: Model,
) -> None:
    graph = chain(("search", asks_async(chat(model), "search")))
    with tenuto.run() as run:
        await asyncio.gather(*(graph.ainvoke(NOTHING) for _ in range(3)))
        side_by_side = {session(asked) for asked in model.arrived}
        await graph.ainvoke(NOTHING)
        expected = run.agent("search").session_id
    assert len(side_by_side) == 3
    assert expected in side_by_side
    assert session(model.arrived[-1]) == expected


def test_configs_can_be_copied_and_pickled_as_without_us(model: Model) -> None:
    langgraph.wrap_model(ChatOpenAI(model="m", base_url=model.base_url, api_key="k"))
    copied: list[Any] = []

    def node(_: Any, config: RunnableConfig) -> None:
        handlers = config["callbacks"].handlers  # type: ignore[union-attr]
        copied.extend([copy.deepcopy(handlers), pickle.loads(pickle.dumps(handlers))])
        copied.append(copy.deepcopy(config["callbacks"]))

    RunnableLambda(node).invoke("")
    assert len(copied) == 3
    copy.deepcopy(CallbackManager.configure([]))


def test_metadata_of_the_programs_own_in_langgraphs_words_makes_no_noise(
    model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    graph = chain(("search", asks(chat(model), "search")))
    for path in ("", (), None, ("__pregel_push",), 3):
        graph.invoke(NOTHING, {"metadata": {"langgraph_path": path}})
    assert caplog.records == []
    assert None not in runs_of(model, "search")


def test_every_model_of_a_chain_and_every_alternative_is_marked(model: Model) -> None:
    def fresh() -> ChatOpenAI:
        return ChatOpenAI(model="m", base_url=model.base_url, api_key="k")

    chosen = fresh().configurable_alternatives(ConfigurableField("which"), other=fresh())
    llm = langgraph.wrap_model(chosen)
    prompted = langgraph.wrap_model(ChatPromptTemplate.from_messages([("user", "{x}")]) | fresh())
    with tenuto.run() as run:
        llm.invoke("hello")
        llm.with_config(configurable={"which": "other"}).invoke("hello")
        prompted.invoke({"x": "hello"})
    assert [run_of(asked) for asked in model.arrived] == [run.run_id] * 3


def test_enabling_in_many_threads_at_once_joins_once(model: Model) -> None:
    barrier = threading.Barrier(8)

    def enable() -> None:
        barrier.wait(10)
        langgraph.enable()

    threads = [threading.Thread(target=enable) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    graph = chain(("search", asks(chat(model), "search")))
    with tenuto.run() as run:
        graph.invoke(NOTHING)
    assert runs_of(model, "search") == [run.run_id]
