"""Haystack: pipelines, their components in threads and the tools of its agent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from haystack import Pipeline, component
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool
from haystack.utils import Secret

import tenuto
from tests.frameworks.scripted import Call, Model, calls_tools


def generator_of(model: Model) -> OpenAIChatGenerator:
    generator = OpenAIChatGenerator(
        model="m", api_key=Secret.from_token("k"), api_base_url=model.base_url
    )
    generator.warm_up()
    asyncio.run(generator.warm_up_async())
    assert generator.client is not None
    assert generator.async_client is not None
    tenuto.wrap(generator.client)
    tenuto.wrap(generator.async_client)
    return generator


@component
class Asking:
    """A component that has a sync `run` only and calls the model in it."""

    def __init__(self, generator: OpenAIChatGenerator) -> None:
        self.generator = generator

    @component.output_types(messages=list[ChatMessage])
    def run(self, words: str) -> dict[str, Any]:
        answer = self.generator.run([ChatMessage.from_user(words)])
        return {"messages": answer["replies"]}


def pipeline_of(model: Model) -> Pipeline:
    generator = generator_of(model)
    pipeline = Pipeline()
    pipeline.add_component("first", Asking(generator))
    pipeline.add_component("second", generator)
    pipeline.connect("first.messages", "second.messages")
    return pipeline


@pytest.mark.stamps("Haystack", "Pipeline {asynchronous}", "run, session")
@pytest.mark.parametrize("asynchronous", [False, True])
def test_every_component_of_a_pipeline_is_in_the_run(asynchronous: bool, model: Model) -> None:
    """https://github.com/deepset-ai/haystack/issues/9203

    Sync components of an async pipeline ran in an executor, without the context.
    """
    pipeline = pipeline_of(model)
    given = {"first": {"words": "begin"}}
    with tenuto.run() as run, run.agent("planner") as agent:
        if asynchronous:
            asyncio.run(pipeline.run_async(given))
        else:
            pipeline.run(given)
    assert [one.headers["x-agent-run-id"] for one in model.arrived] == [run.run_id] * 2
    assert [one.headers["x-session-id"] for one in model.arrived] == [agent.session_id] * 2


@pytest.mark.stamps("Haystack", "Pipeline, many at once", "run")
def test_concurrent_pipelines_are_not_mixed(model: Model) -> None:
    """https://github.com/deepset-ai/haystack-core-integrations/pull/2188

    A stack of spans on the instance was shared by pipelines that ran at once.
    """
    pipeline = pipeline_of(model)
    model.script = lambda asked: str(asked.items[-1]["content"])

    async def work(number: int) -> str:
        async with tenuto.run() as run:
            await pipeline.run_async({"first": {"words": str(number)}})
            return run.run_id

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*(work(number) for number in range(8)))

    runs = asyncio.run(all_of_them())
    assert len(model.arrived) == 16
    for asked in model.arrived:
        assert asked.headers["x-agent-run-id"] == runs[int(asked.items[-1]["content"])]


@pytest.mark.stamps("Haystack", "tools of an Agent {asynchronous}", "run, session")
@pytest.mark.parametrize("asynchronous", [False, True])
def test_parallel_tools_of_an_agent_are_sessions_of_their_own(
    asynchronous: bool, model: Model
) -> None:
    model.script = calls_tools(Call("find", {"words": "left"}), Call("find", {"words": "right"}))
    generator = generator_of(model)

    def find(words: str) -> str:
        with run.agent("search", instance=words):
            return str(generator.run([ChatMessage.from_user(words)]))

    words = {"words": {"type": "string"}}
    parameters = {"type": "object", "properties": words, "required": ["words"]}
    tool = Tool(name="find", description="Find.", parameters=parameters, function=find)
    agent = Agent(chat_generator=generator, tools=[tool])
    with tenuto.run() as run, run.agent("planner") as planner:
        begin = [ChatMessage.from_user("begin")]
        if asynchronous:
            asyncio.run(agent.run_async(messages=begin))
        else:
            agent.run(messages=begin)
        ids = {run.agent("search", instance=name).session_id for name in ("left", "right")}
    first, *searches, last = model.arrived
    assert [one.headers["x-session-id"] for one in (first, last)] == [planner.session_id] * 2
    assert {one.headers["x-session-id"] for one in searches} == ids
    assert {one.headers["x-agent-run-id"] for one in model.arrived} == {run.run_id}
