"""AutoGen: its agents keep the run, its sync tools run in threads that know of none."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import ModelFamily
from autogen_ext.models.openai import OpenAIChatCompletionClient

import tenuto
from tenuto.propagate import propagate
from tests.frameworks.scripted import Call, Model, calls_tools

pytestmark = pytest.mark.anyio


def client_of(model: Model) -> OpenAIChatCompletionClient:
    client = OpenAIChatCompletionClient(
        model="m",
        base_url=model.base_url,
        api_key="k",
        model_info={
            "vision": False,
            "function_calling": True,
            "json_output": True,
            "structured_output": True,
            "family": ModelFamily.UNKNOWN,
        },
    )
    tenuto.wrap(client._client)
    return client


@pytest.mark.parametrize("stream", [False, True])
async def test_an_agent_and_its_async_tools_are_in_the_run(stream: bool, model: Model) -> None:
    model.script = calls_tools(Call("find", {"words": "left"}), Call("find", {"words": "right"}))
    client = client_of(model)
    inner: Any = client._client

    async def find(words: str) -> str:
        """Find."""
        async with run.agent("search", instance=words):
            asking: Any = [{"role": "user", "content": words}]
            return str(await inner.chat.completions.create(model="m", messages=asking))

    agent = AssistantAgent(
        "planner", client, tools=[find], model_client_stream=stream, reflect_on_tool_use=True
    )
    async with tenuto.run() as run, run.agent("planner") as planner:
        await agent.run(task="begin")
        ids = {run.agent("search", instance=words).session_id for words in ("left", "right")}
    first, *searches, last = model.arrived
    assert [one.headers["x-session-id"] for one in (first, last)] == [planner.session_id] * 2
    assert {one.headers["x-session-id"] for one in searches} == ids
    assert {one.headers["x-agent-run-id"] for one in model.arrived} == {run.run_id}


@pytest.mark.parametrize("helped", [False, True])
async def test_a_sync_tool_needs_our_help_and_is_in_no_run_without(
    helped: bool, model: Model
) -> None:
    """https://github.com/microsoft/autogen/pull/4640

    `run_in_executor` starts from an empty context. A call made there is in no run, never
    in that of whoever used the thread before.
    """
    model.script = calls_tools(Call("find", {"words": "left"}), Call("find", {"words": "right"}))
    sync_client = tenuto.wrap(openai.OpenAI(base_url=model.base_url, api_key="k"))

    def find(words: str) -> str:
        """Find."""
        asking: Any = [{"role": "user", "content": words}]
        return str(sync_client.chat.completions.create(model="m", messages=asking))

    with sync_client:
        for _ in range(2):
            model.arrived.clear()
            async with tenuto.run() as run:
                tool = propagate(find) if helped else find
                await AssistantAgent("planner", client_of(model), tools=[tool]).run(task="begin")
            first, *searches = model.arrived
            assert first.headers["x-agent-run-id"] == run.run_id
            expected = run.run_id if helped else None
            assert [one.headers.get("x-agent-run-id") for one in searches] == [expected] * 2


async def test_concurrent_agents_of_one_client_are_not_mixed(model: Model) -> None:
    client = client_of(model)

    async def work(number: int) -> str:
        async with tenuto.run() as run:
            await AssistantAgent("planner", client).run(task=f"work {number}")
            return run.run_id

    runs = await asyncio.gather(*(work(number) for number in range(8)))
    assert len(model.arrived) == 8
    for asked in model.arrived:
        number = asked.items[-1]["content"].split()[-1]
        assert asked.headers["x-agent-run-id"] == runs[int(number)]
