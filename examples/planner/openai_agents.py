"""The program in the OpenAI Agents SDK: three lines of it are tenuto's."""

from __future__ import annotations

from agents import (
    Agent,
    Model,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    TResponseInputItem,
    function_tool,
)
from openai import AsyncOpenAI

import tenuto
from examples.planner import task


@function_tool
def look_up(name: str) -> str:
    """Read a page of the catalogue."""
    return task.page(name)


def said(text: str) -> TResponseInputItem:
    """Return a message to an agent."""
    return {"role": "user", "content": text}


async def solve(base_url: str, model: str, api_key: str) -> str:
    """Return the answer to the task."""
    async with AsyncOpenAI(base_url=base_url, api_key=api_key) as client:
        return await answered(OpenAIChatCompletionsModel(model, tenuto.wrap(client)))


async def answered(llm: Model) -> str:
    """Plan, have the plan's steps done, and review the answer, until it passes."""
    worker = Agent("worker", instructions=task.WORKER, tools=[look_up], model=llm)
    as_tool = worker.as_tool("worker", "Have one step done by a worker.", max_turns=task.MOST_TURNS)
    planner = Agent("planner", instructions=task.PLANNER, tools=[as_tool], model=llm)
    verifier = Agent("verifier", instructions=task.VERIFIER, model=llm)

    asked, reviews = [said(task.TASK)], list[TResponseInputItem]()
    with tenuto.run() as run:
        # The SDK's own traces would go to OpenAI.
        config = run.run_config(RunConfig(tracing_disabled=True))
        for _ in range(task.MOST_ROUNDS):
            answer = await Runner.run(planner, asked, run_config=config)
            review = [*reviews, said(task.to_review(answer.final_output))]
            verdict = await Runner.run(verifier, review, run_config=config)
            if task.is_accepted(verdict.final_output):
                break
            reviews = verdict.to_input_list()
            asked = [*answer.to_input_list(), said(verdict.final_output)]
    return answer.final_output
