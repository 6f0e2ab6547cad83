"""CrewAI, which needs openai 2: tasks in turn, in threads of their own and in async crews."""

from __future__ import annotations

import asyncio
import copy
import threading
from typing import Any

import pydantic
import pytest

import tenuto
from tenuto import process
from tenuto.adapters.crewai import wrap_model
from tenuto.errors import ConfigError
from tests.frameworks.scripted import Call, Model

crewai = pytest.importorskip("crewai")

AGENTS = ("planner", "verifier")


def llm_of(model: Model, **settings: Any) -> Any:
    more = {"base_url": model.base_url, "api_key": "k", **settings}
    return wrap_model(crewai.LLM(model="openai/gpt-4o-mini", **more))


def crew_of(llm: Any, words: str, *, threaded: bool = False) -> Any:
    """Return a crew of two agents with a task each; the first may run in a thread."""
    agents = [crewai.Agent(role=role, goal="answer", backstory="none", llm=llm) for role in AGENTS]
    tasks = [
        crewai.Task(
            description=f"{agent.role} {words}",
            expected_output="words",
            agent=agent,
            async_execution=threaded and agent.role == "planner",
        )
        for agent in agents
    ]
    return crewai.Crew(agents=agents, tasks=tasks)


@pytest.mark.stamps("CrewAI", "{how}", "run, session, parent, turn")
@pytest.mark.stamps("CrewAI", "Task(async_execution=…), {how}", "run, session, parent, turn")
@pytest.mark.parametrize("how", ["kickoff", "kickoff_async", "akickoff"])
@pytest.mark.parametrize("threaded", [False, True])
def test_every_task_of_a_crew_is_in_the_run_around_it(
    threaded: bool, how: str, model: Model
) -> None:
    """https://github.com/crewAIInc/crewAI/issues/4822

    A task with `async_execution` ran in a bare thread, in an empty context.
    """
    llm = llm_of(model)
    crew = crew_of(llm, "begin", threaded=threaded)
    with tenuto.run() as run:
        if how == "kickoff":
            crew.kickoff()
        else:
            asyncio.run(getattr(crew, how)())
    llm.call("outside")
    *inside, outside = model.arrived
    assert sorted(asked.headers["x-session-id"] for asked in inside) == sorted(
        run.agent(name).session_id for name in AGENTS
    )
    assert [asked.headers["x-agent-run-id"] for asked in inside] == [run.run_id] * 2
    assert [asked.headers["x-parent-session-id"] for asked in inside] == [run.session_id] * 2
    assert [asked.turn["n"] for asked in inside] == ["0"] * 2
    assert outside.markers == {}


@pytest.mark.stamps("CrewAI", "LLM.call in a bare thread", "nothing")
def test_a_thread_of_a_programs_own_is_in_no_run(model: Model) -> None:
    """https://github.com/crewAIInc/crewAI/issues/4822

    What starts a bare thread loses the run; it must not find another.
    """
    llm = llm_of(model)
    with tenuto.run():
        thread = threading.Thread(target=llm.call, args=("begin",))
        thread.start()
        thread.join()
    assert [asked.markers for asked in model.arrived] == [{}]


@pytest.mark.stamps("CrewAI", "kickoff in threads", "run")
def test_crews_in_threads_with_one_model_are_not_mixed(model: Model) -> None:
    llm = llm_of(model)
    runs: dict[int, str] = {}

    def work(number: int) -> None:
        with tenuto.run() as run:
            runs[number] = run.run_id
            crew_of(llm, f"work {number}.").kickoff()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(model.arrived) == 8
    for asked in model.arrived:
        (number,) = [number for number in runs if f"work {number}." in asked.text]
        assert asked.headers["x-agent-run-id"] == runs[number]


LLM_CALLS: dict[str, Any] = {
    "LLM.call": lambda llm, **given: llm.call("hi", **given),
    "LLM.acall": lambda llm, **given: asyncio.run(llm.acall("hi", **given)),
}


class Word(pydantic.BaseModel):
    word: str


@pytest.mark.stamps("CrewAI", "{call} {stream}, {api}", "run, session, turn, attempt")
@pytest.mark.parametrize("api", ["completions", "responses"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("call", LLM_CALLS)
def test_every_attempt_of_a_models_call_is_of_one_turn(
    call: str, stream: bool, api: str, model: Model
) -> None:
    model.failures = [500, 500]
    llm = llm_of(model, stream=stream, api=api)
    with tenuto.run() as run, run.agent("planner") as planner:
        LLM_CALLS[call](llm)
    assert [asked.headers["x-session-id"] for asked in model.arrived] == [planner.session_id] * 3
    assert {asked.headers["x-agent-run-id"] for asked in model.arrived} == {run.run_id}
    tried = [(asked.turn["n"], asked.turn["attempt"]) for asked in model.arrived]
    assert tried == [("0", "0"), ("0", "1"), ("0", "2")]


@pytest.mark.parametrize("call", LLM_CALLS)
def test_a_call_for_an_agent_is_in_its_session(call: str, model: Model) -> None:
    llm = llm_of(model)
    planner, _ = crew_of(llm, "begin").agents
    with tenuto.run() as run:
        LLM_CALLS[call](llm, from_agent=planner)
    assert [asked.headers["x-session-id"] for asked in model.arrived] == [
        run.agent("planner").session_id
    ]


@pytest.mark.stamps("CrewAI", "{call}, response_model", "run, session, turn")
@pytest.mark.parametrize("call", LLM_CALLS)
def test_structured_output_is_marked(call: str, model: Model) -> None:
    model.script = lambda asked: '{"word": "hi"}'
    with tenuto.run() as run:
        LLM_CALLS[call](llm_of(model), response_model=Word)
    (asked,) = model.arrived
    assert asked.headers["x-session-id"] == run.session_id
    assert asked.headers["x-agent-run-id"] == run.run_id
    assert asked.turn["n"] == "0"


@pytest.mark.stamps("CrewAI", "an agent that calls tools", "run, session, turn")
def test_the_turns_of_an_agent_that_calls_tools_are_of_one_session(model: Model) -> None:
    model.script = lambda asked: (
        [Call("look", {"where": "here"})] if len(model.arrived) == 1 else "done"
    )

    @crewai.tools.tool("look")
    def look(where: str) -> str:
        """Look."""
        return where

    crew = crew_of(llm_of(model), "begin")
    crew.agents[0].tools = [look]
    with tenuto.run() as run:
        crew.kickoff()
        planner, verifier = (run.agent(name).session_id for name in AGENTS)
    sent = [(asked.headers["x-session-id"], asked.turn["n"]) for asked in model.arrived]
    assert sent == [(planner, "0"), (planner, "1"), (verifier, "0")]
    assert {asked.headers["x-agent-run-id"] for asked in model.arrived} == {run.run_id}


@pytest.mark.stamps("CrewAI", "{how}", "run, session, turn")
@pytest.mark.parametrize("how", ["kickoff_for_each", "kickoff_for_each_async"])
def test_crews_for_each_input_are_instances_of_their_agents(how: str, model: Model) -> None:
    crew, inputs = crew_of(llm_of(model), "{part}"), [{"part": "left"}, {"part": "right"}]
    with tenuto.run() as run:
        if how == "kickoff_for_each":
            crew.kickoff_for_each(inputs)
        else:
            asyncio.run(crew.kickoff_for_each_async(inputs))
        ids = {run.agent(name, instance=i).session_id for name in AGENTS for i in range(2)}
    sent = {(asked.headers["x-session-id"], asked.turn["n"]) for asked in model.arrived}
    assert sent == {(session, "0") for session in ids}
    assert len(model.arrived) == 4
    assert {asked.headers["x-agent-run-id"] for asked in model.arrived} == {run.run_id}


def test_a_crew_that_goes_on_keeps_its_agents_sessions(model: Model) -> None:
    crew = crew_of(llm_of(model), "{part}")
    with tenuto.run() as run, run.agent("crew") as around:
        for part in ("left", "right"):
            crew.kickoff({"part": part})
        ids = [run.agent(name).session_id for name in AGENTS]
    assert [asked.headers["x-session-id"] for asked in model.arrived] == ids * 2
    assert {asked.headers["x-parent-session-id"] for asked in model.arrived} == {around.session_id}


def test_a_copy_of_a_model_is_marked_and_what_is_no_model_is_refused(model: Model) -> None:
    llm = llm_of(model)
    kind = type(llm)
    assert wrap_model(llm) is llm
    assert type(llm) is kind
    assert kind.__name__ == kind.__qualname__ == "OpenAICompletion"
    with tenuto.run() as run:
        copy.copy(llm).call("hi")
    assert process.PASSED_OVER == {}
    assert [asked.headers["x-session-id"] for asked in model.arrived] == [run.session_id]
    with pytest.raises(ConfigError, match="by openai's client, got object"):
        wrap_model(object())
