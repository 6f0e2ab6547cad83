"""AutoGen: its agents keep the run, its sync tools run in threads that know of none."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pydantic
import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken
from autogen_core.models import ModelFamily, UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient

import tenuto
from tenuto.adapters.autogen import wrap_agent, wrap_model
from tenuto.errors import ConfigError
from tenuto.propagate import propagate
from tests.frameworks.scripted import Call, Model, calls_tools

pytestmark = pytest.mark.anyio


class Word(pydantic.BaseModel):
    word: str


def tried(model: Model) -> list[tuple[str, str]]:
    return [(asked.turn["n"], asked.turn["attempt"]) for asked in model.arrived]


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
    return wrap_model(client)


@pytest.mark.stamps("AutoGen", "AssistantAgent.run {stream}", "run, session")
@pytest.mark.stamps("AutoGen", "call of a model in an async tool {stream}", "run, session")
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


@pytest.mark.parametrize(
    "helped",
    [
        pytest.param(
            False,
            marks=pytest.mark.stamps("AutoGen", "call of a model in a sync tool", "nothing"),
        ),
        pytest.param(
            True,
            marks=pytest.mark.stamps(
                "AutoGen", "call of a model in a sync tool, tenuto.propagate", "run"
            ),
        ),
    ],
)
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


@pytest.mark.stamps("AutoGen", "AssistantAgent.run, many at once", "run")
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


@pytest.mark.stamps("AutoGen", "create {stream}", "run, session, turn, attempt")
@pytest.mark.parametrize("stream", [False, True])
async def test_every_attempt_of_a_model_clients_call_is_of_one_turn(
    stream: bool, model: Model
) -> None:
    model.failures = [500, 500]
    client, words = client_of(model), [UserMessage(content="hi", source="user")]
    async with tenuto.run() as run, run.agent("planner") as planner:
        if stream:
            _ = [one async for one in client.create_stream(words)]
        else:
            await client.create(words)
    assert [one.headers["x-session-id"] for one in model.arrived] == [planner.session_id] * 3
    assert {one.headers["x-agent-run-id"] for one in model.arrived} == {run.run_id}
    assert tried(model) == [("0", "0"), ("0", "1"), ("0", "2")]


@pytest.mark.stamps("AutoGen", "create, structured output", "run, session, turn")
async def test_structured_output_is_marked(model: Model) -> None:
    model.script = lambda asked: '{"word": "hi"}'
    async with tenuto.run() as run:
        words = [UserMessage(content="hi", source="user")]
        answer = await client_of(model).create(words, json_output=Word)
    assert Word.model_validate_json(str(answer.content)) == Word(word="hi")
    (asked,) = model.arrived
    assert asked.headers["x-session-id"] == run.session_id
    assert asked.headers["x-agent-run-id"] == run.run_id
    assert tried(model) == [("0", "0")]


@pytest.mark.stamps("AutoGen", "team {streamed}, wrap_agent", "run, session, parent, turn")
@pytest.mark.parametrize("streamed", [False, True])
async def test_each_agent_of_a_team_is_a_session_of_its_own(streamed: bool, model: Model) -> None:
    client = client_of(model)
    agents = [
        wrap_agent(AssistantAgent(name, client, system_message=name))
        for name in ("planner", "verifier")
    ]
    assert wrap_agent(agents[0]) is agents[0]
    team = RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(5))
    async with tenuto.run() as run, run.agent("team") as around:
        if streamed:
            _ = [one async for one in team.run_stream(task="begin")]
        else:
            await team.run(task="begin")
        ids = {name: run.agent(name).session_id for name in ("planner", "verifier")}
    said = [(one.items[0]["content"], one.headers["x-session-id"]) for one in model.arrived]
    assert said == [*ids.items(), *ids.items()]
    assert {one.headers["x-parent-session-id"] for one in model.arrived} == {around.session_id}
    assert [one.turn["n"] for one in model.arrived] == ["0", "0", "1", "1"]
    assert {one.headers["x-agent-run-id"] for one in model.arrived} == {run.run_id}


async def test_two_agents_of_one_name_are_two_sessions_and_their_tools_are_below_them(
    model: Model,
) -> None:
    model.script = calls_tools(Call("find", {"words": "left"}))
    client = client_of(model)

    async def find(words: str) -> str:
        """Find."""
        async with run.agent("search"):
            await client.create([UserMessage(content=words, source="user")])
        return words

    async with tenuto.run() as run:
        for _ in range(2):
            agent = wrap_agent(AssistantAgent("planner", client, tools=[find]))
            await agent.run(task="begin")
    first, search, second, other = model.arrived
    assert [search.headers["x-parent-session-id"], other.headers["x-parent-session-id"]] == [
        first.headers["x-session-id"],
        second.headers["x-session-id"],
    ]
    assert first.headers["x-session-id"] != second.headers["x-session-id"]
    assert first.headers["x-parent-session-id"] == run.session_id


class Asking(BaseChatAgent):
    """An agent of a program's own, which does not stream."""

    produced_message_types = (TextMessage,)

    def __init__(self, name: str, client: OpenAIChatCompletionClient) -> None:
        super().__init__(name, "asks")
        self.client = client

    async def on_messages(self, messages: Any, cancellation_token: Any) -> Response:
        words = [UserMessage(content=messages[-1].content, source="user")]
        answer = await self.client.create(words)
        return Response(chat_message=TextMessage(content=str(answer.content), source=self.name))

    async def on_reset(self, cancellation_token: Any) -> None:
        pass


async def test_an_agent_of_a_programs_own_is_a_session_too(model: Model) -> None:
    agent = wrap_agent(Asking("planner", client_of(model)))
    kind = type(agent)
    assert type(wrap_agent(agent)) is kind
    assert (kind.__module__, kind.__qualname__) == (Asking.__module__, Asking.__qualname__)
    async with tenuto.run() as run:
        await agent.run(task="begin")
    assert [one.headers["x-session-id"] for one in model.arrived] == [
        run.agent("planner").session_id
    ]


async def test_a_wrapped_agent_outside_every_run_works_unmarked(model: Model) -> None:
    agent = wrap_agent(AssistantAgent("planner", client_of(model)))
    await agent.on_messages([TextMessage(content="hi", source="user")], CancellationToken())
    assert [one.markers for one in model.arrived] == [{}]


def test_what_is_not_autogens_is_refused() -> None:
    with pytest.raises(ConfigError, match="AutoGen client of openai, got object"):
        wrap_model(object())
    with pytest.raises(ConfigError, match="agent of autogen-agentchat, got object"):
        wrap_agent(object())
