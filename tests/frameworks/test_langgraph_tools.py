"""LangGraph's tools: its own threads keep the run, a tool's own threads need a hand."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Annotated, Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

import tenuto
from tenuto.propagate import ContextExecutor, propagate
from tests.frameworks.langchain_model import chat_model
from tests.frameworks.scripted import Asked, Call, Model, calls_tools

ASKS_TWO = calls_tools(Call("search", {"words": "left"}), Call("search", {"words": "right"}))


def agent_graph(llm: Any, tools: list[Any], run: tenuto.Run) -> Any:
    """Return the usual loop of a model and its tools, in one session called `agent`."""
    bound = llm.bind_tools(tools)

    def agent(state: MessagesState) -> Any:
        with run.agent("agent"):
            return {"messages": [bound.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("agent", agent)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile()


def start(graph: Any, asynchronous: bool) -> None:
    given = {"messages": [HumanMessage("begin")]}
    if asynchronous:
        asyncio.run(graph.ainvoke(given))
    else:
        graph.invoke(given)


def asked_for(model: Model, words: str) -> Asked:
    """Return the one request that has `words` in its first message."""
    (found,) = [one for one in model.arrived if words in one.items[0]["content"]]
    return found


@pytest.mark.parametrize(
    ("style", "asynchronous"), [("def", False), ("def", True), ("async def", True)]
)
def test_parallel_tools_that_call_the_model_are_sessions_of_their_own(
    style: str, asynchronous: bool, model: Model
) -> None:
    """https://github.com/huggingface/smolagents/pull/1840

    Tool calls that ran side by side in a pool lost the step they belong to; also
    https://github.com/pydantic/pydantic-ai/pull/1576, sync tools off-loaded to threads.
    """
    model.script = ASKS_TWO
    llm = chat_model(model)
    calls: dict[str, str] = {}

    @tool
    def search(words: str, call: Annotated[str, InjectedToolCallId]) -> str:
        """Search."""
        calls[words] = call
        with run.agent("search", instance=call):
            return str(llm.invoke(words).text)

    @tool("search")
    async def async_search(words: str, call: Annotated[str, InjectedToolCallId]) -> str:
        """Search."""
        calls[words] = call
        async with run.agent("search", instance=call):
            return str((await llm.ainvoke(words)).text)

    with tenuto.run() as run:
        tools = [search if style == "def" else async_search]
        start(agent_graph(llm, tools, run), asynchronous)
        agent = run.agent("agent").session_id
        expected = {name: run.agent("search", instance=call) for name, call in calls.items()}
    assert len(model.arrived) == 4
    assert {one.headers["x-agent-run-id"] for one in model.arrived} == {run.run_id}
    asking, *_, answering = model.arrived
    assert [one.headers["x-session-id"] for one in (asking, answering)] == [agent, agent]
    assert [one.turn["n"] for one in (asking, answering)] == ["0", "1"]
    for name, session in expected.items():
        assert asked_for(model, name).headers["x-session-id"] == session.session_id
    assert len({session.session_id for session in expected.values()}) == 2


def pool_of(helper: str) -> Executor:
    return ContextExecutor(max_workers=2) if helper == "ContextExecutor" else ThreadPoolExecutor(2)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("helper", ["nothing", "propagate", "ContextExecutor"])
def test_a_tools_own_pool_keeps_the_run_with_our_help_and_no_run_without(
    helper: str, asynchronous: bool, model: Model
) -> None:
    """https://github.com/crewAIInc/crewAI/pull/4708

    A pool's threads start in an empty context. Without help a call from one is in no run,
    never in that of whoever used the thread before.
    """
    model.script = ASKS_TWO
    llm = chat_model(model)

    @tool
    def search(words: str) -> str:
        """Search."""
        with run.agent("search", instance=words):
            call: Any = propagate(llm.invoke) if helper == "propagate" else llm.invoke
            return " ".join(one.text for one in pool.map(call, [f"{words} 1", f"{words} 2"]))

    with pool_of(helper) as pool:
        for _ in range(2):
            model.arrived.clear()
            with tenuto.run() as run:
                start(agent_graph(llm, [search], run), asynchronous)
            ids = {
                words: None
                if helper == "nothing"
                else (run.run_id, run.agent("search", instance=words).session_id)
                for words in ("left", "right")
            }
            for words, expected in ids.items():
                found = [one for one in model.arrived if words in one.items[0]["content"]]
                assert len(found) == 2
                for one in found:
                    marks = one.headers.get("x-agent-run-id"), one.headers.get("x-session-id")
                    assert (marks if any(marks) else None) == expected


def test_a_thread_of_a_pool_that_served_one_run_shows_it_to_no_other(model: Model) -> None:
    llm = chat_model(model)
    with ContextExecutor(max_workers=1) as pool:
        with tenuto.run() as run:
            pool.submit(llm.invoke, "in a run").result()
        pool.submit(llm.invoke, "in none").result()
        with tenuto.run() as other:
            pool.submit(llm.invoke, "in another").result()
    assert [one.headers.get("x-agent-run-id") for one in model.arrived] == [
        run.run_id,
        None,
        other.run_id,
    ]


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_tasks_of_the_functional_api_are_sessions_of_their_own(how: str, model: Model) -> None:
    llm = chat_model(model)

    @task
    def sync_task(words: str) -> str:
        with run.agent("worker", instance=words):
            return str(llm.invoke(words).text)

    @task
    async def async_task(words: str) -> str:
        async with run.agent("worker", instance=words):
            return str((await llm.ainvoke(words)).text)

    @entrypoint()
    def sync_work(words: list[str]) -> list[str]:
        return [future.result() for future in [sync_task(word) for word in words]]

    @entrypoint()
    async def async_work(words: list[str]) -> list[str]:
        return list(await asyncio.gather(*(async_task(word) for word in words)))

    words = ["one", "two", "three"]
    with tenuto.run() as run:
        if how == "invoke":
            sync_work.invoke(words)
        else:
            asyncio.run(async_work.ainvoke(words))
        ids = {word: run.agent("worker", instance=word).session_id for word in words}
    sent = {one.items[0]["content"]: one.headers["x-session-id"] for one in model.arrived}
    assert sent == ids
