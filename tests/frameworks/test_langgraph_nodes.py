"""LangGraph: nodes, fan-out, subgraphs, retries and resumed threads keep a run's keys."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import openai
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, Send, interrupt

import tenuto
from tests.frameworks.langchain_model import chat_model
from tests.frameworks.scripted import Model


class State(TypedDict):
    said: Annotated[list[str], operator.add]


class Part(TypedDict):
    number: int


def keys(model: Model, name: str = "x-session-id") -> list[str | None]:
    return [asked.headers.get(name) for asked in model.arrived]


def turns(model: Model) -> list[tuple[str, str]]:
    return [(asked.turn["n"], asked.turn["attempt"]) for asked in model.arrived]


def sync_node(llm: Any, scope: Callable[[], tenuto.Agent], words: str) -> Any:
    def node(state: State) -> State:
        with scope():
            return {"said": [llm.invoke(words).text]}

    return node


def async_node(llm: Any, scope: Callable[[], tenuto.Agent], words: str) -> Any:
    async def node(state: State) -> State:
        async with scope():
            return {"said": [(await llm.ainvoke(words)).text]}

    return node


def chain(*nodes: tuple[str, Any], **more: Any) -> Any:
    """Return a compiled graph of nodes, one after the other."""
    graph = StateGraph(State)
    for name, node in nodes:
        graph.add_node(name, node)
    for one, other in zip(
        [START, *(n for n, _ in nodes)], [*(n for n, _ in nodes), END], strict=True
    ):
        graph.add_edge(one, other)
    return graph.compile(**more)


HOW: dict[str, Any] = {
    "invoke": lambda graph: graph.invoke({"said": []}),
    "stream": lambda graph: list(graph.stream({"said": []})),
    "stream of tokens": lambda graph: list(graph.stream({"said": []}, stream_mode="messages")),
    "ainvoke": lambda graph: asyncio.run(graph.ainvoke({"said": []})),
    "astream": lambda graph: asyncio.run(drained(graph.astream({"said": []}))),
    "astream_events": lambda graph: asyncio.run(
        drained(graph.astream_events({"said": []}, version="v2"))
    ),
}


async def drained(items: Any) -> list[Any]:
    return [item async for item in items]


@pytest.mark.parametrize(
    ("node", "how"),
    [*((sync_node, how) for how in HOW), *((async_node, how) for how in HOW if how[0] == "a")],
)
def test_every_nodes_requests_carry_the_run_and_its_own_session(
    how: str, node: Any, model: Model
) -> None:
    """https://github.com/langfuse/langfuse/issues/16177

    Of an async graph only the root span carried the session, the generations none; also
    https://github.com/open-telemetry/opentelemetry-python-genai/issues/513, where every
    step became a trace of its own.
    """
    llm = chat_model(model)
    with tenuto.run() as run:
        planner, verifier = run.agent("planner"), run.agent("verifier")
        graph = chain(
            ("planner", node(llm, lambda: planner, "plan")),
            ("verifier", node(llm, lambda: verifier, "verify")),
        )
        HOW[how](graph)
    llm.invoke("after")
    assert keys(model) == [planner.session_id, verifier.session_id, None]
    assert keys(model, "x-agent-run-id") == [run.run_id, run.run_id, None]
    assert keys(model, "x-parent-session-id") == [run.session_id, run.session_id, None]


def test_a_session_of_one_node_goes_on_when_the_graph_loops_back(model: Model) -> None:
    llm = chat_model(model)

    def planner(state: State) -> State:
        with run.agent("planner"):
            return {"said": [llm.invoke("go on " * (len(state["said"]) + 1)).text]}

    graph = StateGraph(State)
    graph.add_node("planner", planner)
    graph.add_edge(START, "planner")
    graph.add_conditional_edges("planner", lambda s: END if len(s["said"]) > 2 else "planner")
    with tenuto.run() as run:
        graph.compile().invoke({"said": []})
    assert len(set(keys(model))) == 1
    assert turns(model) == [("0", "0"), ("1", "0"), ("2", "0")]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_branches_sent_in_parallel_are_sessions_of_their_own(
    asynchronous: bool, model: Model
) -> None:
    llm = chat_model(model)

    def worker(part: Part) -> State:
        with run.agent("worker", instance=part["number"]):
            llm.invoke(f"part {part['number']}")
            return {"said": [llm.invoke(f"part {part['number']} again").text]}

    graph = StateGraph(State)
    graph.add_node("worker", worker)
    graph.add_conditional_edges(START, lambda _: [Send("worker", {"number": n}) for n in range(6)])
    compiled = graph.compile()
    with tenuto.run() as run:
        HOW["ainvoke" if asynchronous else "invoke"](compiled)
        ids = [run.agent("worker", instance=number).session_id for number in range(6)]
    assert len(set(ids)) == 6
    assert len(model.arrived) == 12
    for asked in model.arrived:
        _, number, *again = asked.items[-1]["content"].split()
        assert asked.headers["x-session-id"] == ids[int(number)]
        assert asked.headers["x-parent-session-id"] == run.session_id
        assert asked.turn["n"] == str(len(again))


@pytest.mark.parametrize("how", HOW)
def test_an_agent_in_a_subgraph_is_a_child_of_the_agent_around_it(how: str, model: Model) -> None:
    """https://github.com/Arize-ai/openinference/issues/147

    In an async chain the span of an openai call hung on its grandparent.
    """
    llm = chat_model(model)
    with tenuto.run() as run:
        inner = chain(("search", sync_node(llm, lambda: run.agent("search"), "search")))

        def planner(state: State) -> State:
            with run.agent("planner"):
                llm.invoke("plan")
                inner.invoke(state)
                return {"said": [llm.invoke("plan with what was found").text]}

        outer = chain(
            ("planner", planner),
            ("verifier", sync_node(llm, lambda: run.agent("verifier"), "verify")),
        )
        HOW[how](outer)
        with run.agent("planner") as parent:
            child = run.agent("search")
        verifier = run.agent("verifier")
    assert keys(model) == [
        parent.session_id,
        child.session_id,
        parent.session_id,
        verifier.session_id,
    ]
    assert keys(model, "x-parent-session-id") == [
        run.session_id,
        parent.session_id,
        run.session_id,
        run.session_id,
    ]


@pytest.mark.parametrize("how", HOW)
def test_a_node_tried_again_is_the_same_turns_next_attempt(how: str, model: Model) -> None:
    """https://github.com/langchain-ai/docs/issues/4070

    A node that a retry enters again came out as new work. Its prompt is the same, so its
    turn is.
    """
    model.failures = [500, 500]
    llm = chat_model(model, max_retries=0)
    graph = StateGraph(State)
    policy = RetryPolicy(initial_interval=0.001, jitter=False, retry_on=openai.InternalServerError)
    with tenuto.run() as run:
        node = sync_node(llm, lambda: run.agent("planner"), "plan")
        graph.add_node("planner", node, retry_policy=policy)
        graph.add_edge(START, "planner")
        HOW[how](graph.compile())
    assert len(set(keys(model))) == 1
    assert turns(model) == [("0", "0"), ("0", "1"), ("0", "2")]


def test_a_thread_resumed_under_its_runs_name_keeps_every_key(model: Model) -> None:
    """https://github.com/langfuse/langfuse/issues/6704

    An interrupt and its resumption became two traces. The node starts over when it is
    resumed, so its first call is tried again and the next one opens the next turn.
    """
    llm = chat_model(model)

    def planner(state: State) -> State:
        with run.agent("planner"):
            plan = llm.invoke("plan").text
            approved = interrupt("is it good?")
            return {"said": [plan, llm.invoke(f"carry out, {approved}").text]}

    graph = chain(("planner", planner), checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "thread-7"}}
    with tenuto.run("thread-7-of-the-resumed-graph") as run:
        graph.invoke({"said": []}, config)
    llm.invoke("between")
    with tenuto.run("thread-7-of-the-resumed-graph") as run:
        graph.invoke(Command(resume="yes"), config)
    first, between, again, after = model.arrived
    assert between.markers == {}
    assert len({one.headers["x-session-id"] for one in (first, again, after)}) == 1
    assert {one.headers["x-agent-run-id"] for one in (first, again, after)} == {run.run_id}
    tried = [(one.turn["n"], one.turn["attempt"]) for one in (first, again, after)]
    assert tried == [("0", "0"), ("0", "1"), ("1", "0")]


def test_runs_in_a_row_are_siblings_and_leave_nothing_behind(model: Model) -> None:
    """https://github.com/braintrustdata/braintrust-sdk-python/issues/621

    Each `ainvoke` became a child of the one before, since an async callback's context
    leaked.
    """
    llm = chat_model(model)

    async def work() -> list[tenuto.Run]:
        runs = []
        for _ in range(3):
            async with tenuto.run() as run:
                node = async_node(llm, lambda run=run: run.agent("planner"), "plan")
                await chain(("planner", node)).ainvoke({"said": []})
            runs.append(run)
            await llm.ainvoke("between")
        return runs

    runs = asyncio.run(work())
    marked, unmarked = model.arrived[::2], model.arrived[1::2]
    assert [one.headers["x-agent-run-id"] for one in marked] == [run.run_id for run in runs]
    assert [one.headers["x-parent-session-id"] for one in marked] == [r.session_id for r in runs]
    assert [one.markers for one in unmarked] == [{}] * 3


@pytest.mark.parametrize("node", [sync_node, async_node])
def test_concurrent_runs_of_one_graph_and_one_model_are_not_mixed(node: Any, model: Model) -> None:
    """https://github.com/deepset-ai/haystack-core-integrations/pull/2188

    State on a shared instance mixed concurrent pipelines; also
    https://github.com/langfuse/langfuse/issues/3491, one handler used in parallel.
    """
    llm = chat_model(model)

    async def work(number: int) -> str:
        async with tenuto.run() as run:
            graph = chain(
                ("one", node(llm, lambda: run.agent("one"), f"{number}")),
                ("two", node(llm, lambda: run.agent("two"), f"{number}")),
            )
            await graph.ainvoke({"said": []})
            return run.run_id

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*(work(number) for number in range(20)))

    runs = asyncio.run(all_of_them())
    assert len(model.arrived) == 40
    for asked in model.arrived:
        assert asked.headers["x-agent-run-id"] == runs[int(asked.items[-1]["content"])]
