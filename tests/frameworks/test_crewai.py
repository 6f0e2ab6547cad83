"""CrewAI, which needs openai 2: tasks in turn, in threads of their own and in async crews."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import tenuto
from tests.frameworks.scripted import Model

crewai = pytest.importorskip("crewai")


def llm_of(model: Model) -> Any:
    llm = crewai.LLM(model="openai/gpt-4o-mini", base_url=model.base_url, api_key="k")
    tenuto.wrap(llm._client)
    tenuto.wrap(llm._async_client)
    return llm


def crew_of(llm: Any, words: str, *, threaded: bool = False) -> Any:
    """Return a crew of two agents with a task each; the first may run in a thread."""
    agents = [
        crewai.Agent(role=role, goal="answer", backstory="none", llm=llm)
        for role in ("planner", "verifier")
    ]
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
    assert len(inside) == 2
    assert [asked.headers["x-agent-run-id"] for asked in inside] == [run.run_id] * 2
    assert outside.markers == {}


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
