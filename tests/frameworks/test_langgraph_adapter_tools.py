"""Tools, prebuilt agents and threads that another process resumes, through `wrap_model`."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import create_react_agent
from langgraph.types import Command, Send, interrupt

import tenuto
from tests.frameworks.scripted import Call, Model, calls_tools
from tests.frameworks.test_langgraph_adapter import (
    HOW,
    NOTHING,
    State,
    chain,
    chat,
    of,
    run_of,
    session,
)

ASKED: Any = {"messages": [("user", "hello")]}


def agent(llm: Any, tools: list[Any], **more: Any) -> Any:
    with warnings.catch_warnings():
        # Moved to a package that needs this one.
        warnings.simplefilter("ignore")
        return create_react_agent(llm, tools, **more)


def searching(llm: Any) -> Any:
    @tool
    def search(words: str) -> str:
        """Search."""
        return llm.invoke(f"search {words}").text

    return search


def searching_async(llm: Any) -> Any:
    @tool
    async def search(words: str) -> str:
        """Search."""
        return (await llm.ainvoke(f"search {words}")).text

    return search


TWO_SEARCHES = [Call("search", {"words": "left"}), Call("search", {"words": "right"})]


@pytest.mark.stamps("LangGraph", "prebuilt agent and its tools, {how}", "run, session, turn")
@pytest.mark.parametrize(
    ("make", "how"),
    [
        *((searching, how) for how in HOW),
        *((searching_async, how) for how in HOW if how[0] == "a"),
    ],
)
def test_a_prebuilt_agent_is_one_session_and_each_of_its_tools_calls_another(
    make: Any, how: str, model: Model
) -> None:
    """https://github.com/crewAIInc/crewAI/pull/4708

    Tools that run side by side in a pool of threads lost the step they belong to.
    """
    llm = chat(model)
    model.script = calls_tools(*TWO_SEARCHES)
    graph = agent(llm, [make(llm)])
    with tenuto.run() as run:
        HOW[how](graph, given=ASKED)
        expected = run.agent("agent").session_id
    assert {run_of(asked) for asked in model.arrived} == {run.run_id}
    own = [asked for asked in model.arrived if asked.body.get("tools")]
    assert [(session(asked), asked.turn["n"]) for asked in own] == [
        (expected, "0"),
        (expected, "1"),
    ]
    searches = of(model, "search left") + of(model, "search right")
    tools = [asked for asked in searches if not asked.body.get("tools")]
    assert len(tools) == len({session(asked) for asked in tools}) == 2


def test_prebuilt_agents_as_nodes_keep_their_sessions_over_visits(model: Model) -> None:
    llm = chat(model)
    planner, verifier = (agent(llm, [], name=name) for name in ("planner", "verifier"))
    graph = chain(("planner", planner), ("verifier", verifier), ("again", planner))
    with tenuto.run() as run:
        graph.invoke(ASKED | NOTHING)
        with run.agent("planner"):
            expected = run.agent("agent").session_id
    assert len({session(asked) for asked in model.arrived}) == 3
    assert session(model.arrived[0]) == expected


def test_a_pool_of_the_tools_own_keeps_the_node_when_it_carries_the_context(model: Model) -> None:
    llm = chat(model)

    def node(state: Any) -> Any:
        with tenuto.ContextExecutor(2) as carrying, ThreadPoolExecutor(2) as bare:
            list(carrying.map(llm.invoke, ["left", "right"]))
            bare.submit(llm.invoke, "bare").result()
        return NOTHING

    with tenuto.run() as run:
        chain(("planner", node)).invoke(NOTHING)
        expected = run.agent("planner").session_id
    assert [session(asked) for asked in of(model, "left") + of(model, "right")] == [expected] * 2
    assert [session(asked) for asked in of(model, "bare")] == [None]


class FileSaver(InMemorySaver):
    """A checkpointer whose threads another process can go on with."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file
        if file.exists():
            storage, self.writes_, blobs = pickle.loads(file.read_bytes())
            for thread, spaces in storage.items():
                for space, held in spaces.items():
                    self.storage[thread][space] = held
            self.writes.update(self.writes_)
            self.blobs.update(blobs)

    def save(self) -> None:
        storage = {thread: dict(spaces) for thread, spaces in self.storage.items()}
        self.file.write_bytes(pickle.dumps((storage, dict(self.writes), dict(self.blobs))))


def resume(base_url: str, file: str) -> None:
    """Go on with the thread in a process of its own."""
    saver = FileSaver(Path(file))
    graph = interrupted(chat(Model(url=base_url)), saver)
    assert graph.invoke(Command(resume=True), THREAD)["said"] == ["finished"]


THREAD: Any = {"configurable": {"thread_id": "in another process"}}


def interrupted(llm: Any, saver: Any) -> Any:
    def worker(state: Any) -> Any:
        llm.invoke("work")
        interrupt("go on?")
        llm.invoke("finish")
        return {"said": ["finished"]}

    graph = StateGraph(State)
    graph.add_node("deep", chain(("worker", worker)))
    graph.add_conditional_edges(START, lambda state: [Send("deep", NOTHING)], ["deep"])
    return graph.compile(checkpointer=saver)


@pytest.mark.stamps("LangGraph", "resumed by another process", "run, session")
def test_another_process_goes_on_in_the_session_of_a_task_that_waits(
    model: Model, tmp_path: Path
) -> None:
    saver = FileSaver(tmp_path / "threads")
    interrupted(chat(model), saver).invoke(NOTHING, THREAD)
    saver.save()
    code = f"from {__name__} import resume; resume({model.url!r}, {str(saver.file)!r})"
    where = str(Path(__file__).parents[2])
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": where}
    )
    before, after = of(model, "work")
    (finished,) = of(model, "finish")
    assert session(before) == session(after) == session(finished)
    assert run_of(before) == tenuto.run("in another process").run_id


def test_an_event_loop_after_another_finds_nothing_of_the_first(model: Model) -> None:
    """https://github.com/langchain-ai/langchain/issues/35783

    A cached async client was used over several event loops.
    """
    llm = chat(model)

    async def node(state: Any) -> Any:
        return {"said": [(await llm.ainvoke("plan")).text]}

    graph = chain(("planner", node))
    for _ in range(2):
        asyncio.run(graph.ainvoke(NOTHING))
    assert len({run_of(asked) for asked in model.arrived}) == 2
