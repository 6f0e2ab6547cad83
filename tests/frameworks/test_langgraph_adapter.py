"""LangGraph through `wrap_model`: nodes are sessions, and nothing of the graph changes."""

from __future__ import annotations

import asyncio
import operator
from collections import Counter
from typing import Annotated, Any, TypedDict

import openai
import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, Send, interrupt

import tenuto
from tenuto.adapters import langgraph
from tests.frameworks.scripted import Asked, Model


class State(TypedDict):
    said: Annotated[list[str], operator.add]


def chat(model: Model, **more: Any) -> ChatOpenAI:
    return langgraph.wrap_model(
        ChatOpenAI(model="m", base_url=model.base_url, api_key="k", **more), dialect="vllm"
    )


def asks(llm: Any, words: str) -> Any:
    """Return a node that asks the model."""

    def node(state: State) -> State:
        return {"said": [llm.invoke(words).text]}

    return node


def asks_async(llm: Any, words: str) -> Any:
    async def node(state: State) -> State:
        return {"said": [(await llm.ainvoke(words)).text]}

    return node


def chain(*nodes: tuple[str, Any], **more: Any) -> Any:
    graph = StateGraph(State)
    names = [name for name, _ in nodes]
    for name, node in nodes:
        graph.add_node(name, node)
    for one, other in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(one, other)
    return graph.compile(**more)


def of(model: Model, words: str) -> list[Asked]:
    return [asked for asked in model.arrived if words in asked.text]


def session(asked: Asked) -> str | None:
    return asked.headers.get("x-session-id")


def run_of(asked: Asked) -> str | None:
    return asked.headers.get("x-agent-run-id")


NOTHING: Any = {"said": []}
HOW: dict[str, Any] = {
    "invoke": lambda graph, given=NOTHING, **how: graph.invoke(given, **how),
    "stream": lambda graph, given=NOTHING, **how: list(graph.stream(given, **how)),
    "ainvoke": lambda graph, given=NOTHING, **how: asyncio.run(graph.ainvoke(given, **how)),
    "astream": lambda graph, given=NOTHING, **how: asyncio.run(
        drained(graph.astream(given, **how))
    ),
    "astream_events": lambda graph, given=NOTHING, **how: asyncio.run(
        drained(graph.astream_events(given, version="v2", **how))
    ),
}


async def drained(items: Any) -> list[Any]:
    return [item async for item in items]


@pytest.mark.stamps("LangGraph", "nodes, {how}", "run, session, parent")
@pytest.mark.parametrize(
    ("node", "how"),
    [*((asks, how) for how in HOW), *((asks_async, how) for how in HOW if how[0] == "a")],
)
def test_nodes_are_agents_of_the_run_around_the_graph(how: str, node: Any, model: Model) -> None:
    """https://github.com/langfuse/langfuse/issues/16177

    Of an async graph only the root span carried the session, the generations none; also
    https://github.com/open-telemetry/opentelemetry-python-genai/issues/513, where every
    step became a trace of its own.
    """
    llm = chat(model)
    graph = chain(("planner", node(llm, "plan")), ("verifier", node(llm, "verify")))
    with tenuto.run("ticket") as run:
        HOW[how](graph)
        expected = [run.agent("planner").session_id, run.agent("verifier").session_id]
    assert [session(asked) for asked in model.arrived] == expected
    assert {asked.headers["x-parent-session-id"] for asked in model.arrived} == {run.session_id}


@pytest.mark.stamps("LangGraph", "thread, {how}", "run, session")
@pytest.mark.parametrize("how", HOW)
def test_the_thread_is_the_run_where_no_scope_says_another(how: str, model: Model) -> None:
    llm = chat(model)
    graph = chain(("planner", asks(llm, "plan")), checkpointer=InMemorySaver())
    for thread in ("t-1", "t-2", "t-1"):
        HOW[how](graph, config={"configurable": {"thread_id": thread}})
    first, second, third = model.arrived
    assert run_of(first) == tenuto.run("t-1").run_id == run_of(third)
    assert run_of(second) == tenuto.run("t-2").run_id
    assert session(first) == session(third) == tenuto.run("t-1").agent("planner").session_id
    assert not any("t-1" in value for value in first.headers.values())


@pytest.mark.stamps("LangGraph", "neither thread nor scope, {how}", "run")
@pytest.mark.parametrize("how", HOW)
def test_a_graph_without_thread_or_scope_is_a_run_for_each_call(how: str, model: Model) -> None:
    llm = chat(model)
    graph = chain(("planner", asks(llm, "plan")), ("verifier", asks(llm, "verify")))
    HOW[how](graph)
    HOW[how](graph)
    runs = [run_of(asked) for asked in model.arrived]
    assert runs[0] == runs[1] != runs[2] == runs[3]
    assert None not in runs
    llm.invoke("after")
    assert session(model.arrived[-1]) is None


def test_a_call_outside_of_every_graph_is_in_no_session_and_does_not_raise(model: Model) -> None:
    """https://github.com/langchain-ai/langgraph/pull/7041

    Outside of a runnable, and in async nodes on Python 3.10, LangGraph's config cannot be read.
    """
    chat(model).invoke("alone")
    assert [session(asked) for asked in model.arrived] == [None]


def test_two_threads_in_one_scope_are_two_histories_of_its_run(model: Model) -> None:
    graph = chain(("planner", asks(chat(model), "plan")), checkpointer=InMemorySaver())
    with tenuto.run() as run:
        for thread in ("t-1", "t-2", "t-1"):
            graph.invoke(NOTHING, {"configurable": {"thread_id": thread}})
    assert {run_of(asked) for asked in model.arrived} == {run.run_id}
    sessions = [session(asked) for asked in model.arrived]
    assert sessions[0] == sessions[2] != sessions[1]


@pytest.mark.stamps("LangGraph", "subgraph", "session, parent")
def test_nodes_of_a_subgraph_are_below_the_node_that_it_runs_in(model: Model) -> None:
    """https://github.com/Arize-ai/openinference/issues/147

    A call in a nested chain was attached to the grandparent.
    """
    llm = chat(model)
    inner = chain(("search", asks(llm, "search")))

    def calls(state: State) -> State:
        inner.invoke(NOTHING)
        inner.invoke(NOTHING)
        return {"said": [llm.invoke("own").text]}

    graph = chain(("added", inner), ("calls", calls))
    with tenuto.run() as run:
        graph.invoke(NOTHING)
        with run.agent("added") as added:
            search = run.agent("search").session_id
        expected = run.agent("calls").session_id
    first, second, third = of(model, "search")
    assert session(first) == search
    assert first.headers["x-parent-session-id"] == added.session_id
    assert {one.headers["x-parent-session-id"] for one in (second, third)} == {expected}
    assert session(second) != session(third)
    assert [session(asked) for asked in of(model, "own")] == [expected]


@pytest.mark.stamps("LangGraph", "Send, {how}", "session, parent")
@pytest.mark.parametrize("how", HOW)
def test_tasks_of_a_fan_out_are_instances_also_where_each_is_a_subgraph(
    how: str, model: Model
) -> None:
    llm = chat(model)
    inner = chain(("search", asks(llm, "search")))
    graph = StateGraph(State)
    graph.add_node("plan", asks(llm, "plan"))
    graph.add_node("worker", asks(llm, "work"))
    graph.add_node("deep", inner)
    graph.add_edge(START, "plan")
    graph.add_conditional_edges(
        "plan",
        lambda state: [Send(name, NOTHING) for name in ("worker", "worker", "deep", "deep")],
        ["worker", "deep"],
    )
    with tenuto.run():
        HOW[how](graph.compile())
    for words in ("work", "search"):
        both = of(model, words)
        assert len(both) == len({session(asked) for asked in both}) == 2
    assert len({asked.headers["x-parent-session-id"] for asked in of(model, "search")}) == 2


@pytest.mark.stamps("LangGraph", "loop", "session, turn")
def test_a_node_in_a_loop_is_one_session_of_several_turns(model: Model) -> None:
    llm = chat(model)

    def node(state: State) -> State:
        words = "work " + " ".join(state["said"])
        return {"said": [llm.invoke(words).text]}

    graph = StateGraph(State)
    graph.add_node("worker", node)
    graph.add_edge(START, "worker")
    graph.add_conditional_edges(
        "worker", lambda state: END if len(state["said"]) == 3 else "worker", ["worker", END]
    )
    with tenuto.run():
        graph.compile().invoke(NOTHING)
    assert len({session(asked) for asked in model.arrived}) == 1
    assert [asked.turn["n"] for asked in model.arrived] == ["0", "1", "2"]


@pytest.mark.stamps("LangGraph", "RetryPolicy", "session, turn, attempt")
def test_an_attempt_of_a_nodes_retry_policy_is_one_of_the_same_turn(model: Model) -> None:
    """https://github.com/langchain-ai/langgraph/issues/8702

    A node that is entered again came out as new work.
    """
    llm = chat(model, max_retries=0)
    model.failures = [500, 500]
    graph = StateGraph(State)
    retry = RetryPolicy(
        max_attempts=3, initial_interval=0.001, jitter=False, retry_on=openai.APIError
    )
    graph.add_node("worker", asks(llm, "work"), retry_policy=retry)
    graph.add_edge(START, "worker")
    graph.compile().invoke(NOTHING)
    assert len({(session(asked), asked.turn["n"]) for asked in model.arrived}) == 1
    assert [asked.turn["attempt"] for asked in model.arrived] == ["0", "1", "2"]


@pytest.mark.stamps("LangGraph", "interrupt and resume", "session, turn, attempt")
def test_a_thread_that_was_interrupted_resumes_in_its_session(model: Model) -> None:
    """https://github.com/langfuse/langfuse/issues/6704

    Interrupting and resuming split one task into two traces.
    """
    llm = chat(model)

    def worker(state: State) -> State:
        words = llm.invoke("work").text
        interrupt("go on?")
        return {"said": [words + llm.invoke("finish").text]}

    config: Any = {"configurable": {"thread_id": "resumed"}}
    graph = chain(("worker", worker), checkpointer=InMemorySaver())
    graph.invoke(NOTHING, config)
    graph.invoke(Command(resume=True), config)
    assert len(model.arrived) == 3
    assert {session(asked) for asked in model.arrived} == {
        tenuto.run("resumed").agent("worker").session_id
    }
    tried = [(asked.turn["n"], asked.turn["attempt"]) for asked in model.arrived]
    assert tried == [("0", "0"), ("0", "1"), ("1", "0")]


def test_a_scope_that_a_node_opens_wins_over_the_node(model: Model) -> None:
    llm = chat(model)
    inner = chain(("search", asks(llm, "search")))

    def node(state: State) -> State:
        llm.invoke("own")
        with run.agent("reviewer"):
            llm.invoke("review")
            inner.invoke(NOTHING)
        with tenuto.run("other"):
            llm.invoke("other")
        return {"said": []}

    with tenuto.run() as run:
        chain(("planner", node)).invoke(NOTHING)
        with run.agent("planner") as planner, run.agent("reviewer") as reviewer:
            search = run.agent("search").session_id
    (own,), (review,), (other,) = (of(model, words) for words in ("own", "review", "other"))
    assert session(own) == planner.session_id
    assert session(review) == reviewer.session_id
    assert [session(asked) for asked in of(model, "search")] == [search]
    assert session(other) == tenuto.run("other").session_id


@pytest.mark.parametrize("how", ["astream", "astream_events"])
def test_who_pulls_a_stream_may_open_scopes_and_the_graph_stays_in_its_own(
    how: str, model: Model
) -> None:
    llm = chat(model)
    nodes = [(name, asks_async(llm, name)) for name in ("one", "two", "three")]
    graph = chain(*nodes)

    async def consume() -> str:
        async with tenuto.run() as run:
            more = {"version": "v2"} if how == "astream_events" else {}
            async for _ in getattr(graph, how)(NOTHING, **more):
                scope = tenuto.run("of the consumer")
                scope.__enter__()
        return run.run_id

    expected = asyncio.run(consume())
    assert [run_of(asked) for asked in model.arrived] == [expected] * 3


def test_graphs_side_by_side_over_one_model_are_not_mixed(model: Model) -> None:
    llm = chat(model)
    graph = chain(("one", asks_async(llm, "one")), ("two", asks_async(llm, "two")))

    async def work() -> None:
        await asyncio.gather(*(graph.ainvoke(NOTHING) for _ in range(20)))

    asyncio.run(work())
    assert Counter(Counter(run_of(asked) for asked in model.arrived).values()) == {2: 20}


@pytest.mark.stamps("LangGraph", "@task", "session, parent")
def test_tasks_of_the_functional_api_are_instances(model: Model) -> None:
    llm = chat(model)

    @task
    def ask(number: int) -> str:
        return llm.invoke(f"work {number}").text

    @entrypoint()
    def workflow(numbers: list[int]) -> list[str]:
        return [future.result() for future in [ask(number) for number in numbers]]

    with tenuto.run() as run:
        workflow.invoke([1, 2])
        expected = run.agent("workflow").session_id
    assert len({session(asked) for asked in model.arrived}) == 2
    assert {asked.headers["x-parent-session-id"] for asked in model.arrived} == {expected}


def test_callbacks_of_the_programs_own_do_not_hide_the_run(model: Model) -> None:
    llm = chat(model)
    inner = chain(("search", asks(llm, "search")))

    def node(state: State) -> State:
        inner.invoke(NOTHING, {"callbacks": [BaseCallbackHandler()]})
        return {"said": [llm.invoke("own").text]}

    graph = chain(("planner", node))
    graph.invoke(NOTHING, {"callbacks": [BaseCallbackHandler()]})
    with tenuto.run() as run:
        graph.invoke(NOTHING)
    runs = [run_of(asked) for asked in model.arrived]
    assert runs == [runs[0], runs[0], run.run_id, run.run_id]
    assert runs[0] not in {None, run.run_id}


def test_models_that_nobody_wrapped_stay_unmarked_and_so_does_the_shared_http_client(
    model: Model,
) -> None:
    wrapped = chat(model)
    other = ChatOpenAI(model="m", base_url=model.base_url, api_key="k")
    graph = chain(("one", asks(wrapped, "one")), ("two", asks(other, "two")))
    with tenuto.run():
        graph.invoke(NOTHING)
    assert [session(asked) is not None for asked in model.arrived] == [True, False]


def test_what_holds_no_openai_client_is_refused_with_a_sentence() -> None:
    with pytest.raises(tenuto.ConfigError, match="langchain-openai, got int"):
        langgraph.wrap_model(3)


def test_bound_models_and_fallbacks_are_wrapped_through(model: Model) -> None:
    def fresh() -> ChatOpenAI:
        return ChatOpenAI(model="m", base_url=model.base_url, api_key="k", max_retries=0)

    shapes = [
        langgraph.wrap_model(fresh().bind(temperature=0)),
        langgraph.wrap_model(fresh().with_fallbacks([fresh()])),
    ]
    model.failures = [500]
    with tenuto.run() as run:
        for llm in shapes[::-1]:
            llm.invoke("hello")
    assert [run_of(asked) for asked in model.arrived] == [run.run_id] * 3
