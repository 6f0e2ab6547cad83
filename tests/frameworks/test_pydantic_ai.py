"""pydantic-ai: its runs, its tools in threads and its retries keep a run's keys."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pydantic
import pytest
from pydantic_ai import Agent, ModelRetry, NativeOutput, PromptedOutput, RunContext
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

import tenuto
from tests.frameworks.scripted import Asked, Call, Model, calls_tools

MODELS: dict[str, Any] = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}
pytestmark = pytest.mark.parametrize("api", MODELS)


class Word(pydantic.BaseModel):
    word: str


def agent_of(model: Model, api: str, **more: Any) -> Agent[Any, Any]:
    client = tenuto.wrap(openai.AsyncOpenAI(base_url=model.base_url, api_key="k"))
    return Agent(MODELS[api]("m", provider=OpenAIProvider(openai_client=client)), **more)


def tried(model: Model) -> list[tuple[str, str]]:
    return [(asked.turn["n"], asked.turn["attempt"]) for asked in model.arrived]


def number_of(asked: Asked) -> int:
    return int(asked.text.rstrip('"}]').split()[-1])


async def run_streamed(agent: Agent[Any, Any], words: str) -> None:
    async with agent.run_stream(words) as result:
        await result.get_output()


async def iterate(agent: Agent[Any, Any], words: str) -> None:
    async with agent.iter(words) as nodes:
        async for _ in nodes:
            pass


HOW: dict[str, Any] = {
    "run": lambda agent: asyncio.run(agent.run("begin")),
    "run_sync": lambda agent: agent.run_sync("begin"),
    "run_stream": lambda agent: asyncio.run(run_streamed(agent, "begin")),
    "iter": lambda agent: asyncio.run(iterate(agent, "begin")),
}


@pytest.mark.stamps("pydantic-ai", "{how}", "run, session, turn")
@pytest.mark.stamps("pydantic-ai", "call of a model in a tool, {style}", "run, session, parent")
@pytest.mark.parametrize("style", ["def", "async def"])
@pytest.mark.parametrize("how", HOW)
def test_a_tool_that_calls_the_model_is_in_the_run_and_in_its_own_session(
    how: str, style: str, api: str, model: Model
) -> None:
    """https://github.com/pydantic/pydantic-ai/pull/1576

    Sync tools are off-loaded to threads, and once lost the context there.
    """
    model.script = calls_tools(Call("find"), Call("find"))
    client = tenuto.wrap(openai.OpenAI(base_url=model.base_url, api_key="k"))
    aclient = tenuto.wrap(openai.AsyncOpenAI(base_url=model.base_url, api_key="k"))
    asking: Any = {"model": "m", "messages": [{"role": "user", "content": "search"}]}
    calls: list[str] = []

    def find(context: RunContext[Any]) -> str:
        calls.append(str(context.tool_call_id))
        with run.agent("search", instance=calls[-1]):
            return str(client.chat.completions.create(**asking))

    async def afind(context: RunContext[Any]) -> str:
        calls.append(call := str(context.tool_call_id))
        async with run.agent("search", instance=call):
            return str(await aclient.chat.completions.create(**asking))

    agent = agent_of(model, api)
    agent.tool(find if style == "def" else afind, name="find")
    with client, tenuto.run() as run, run.agent("planner") as planner:
        HOW[how](agent)
        expected = {run.agent("search", instance=call).session_id for call in calls}
    HOW[how](agent_of(model, api))
    *inside, outside = model.arrived
    assert outside.markers == {}
    assert {asked.headers["x-agent-run-id"] for asked in inside} == {run.run_id}
    first, *searches, last = inside
    assert [one.headers["x-session-id"] for one in (first, last)] == [planner.session_id] * 2
    assert [one.turn["n"] for one in (first, last)] == ["0", "1"]
    assert {one.headers["x-session-id"] for one in searches} == expected
    assert len(searches) == len(expected) == 2
    assert {one.headers["x-parent-session-id"] for one in searches} == {planner.session_id}


@pytest.mark.stamps("pydantic-ai", "{how}, ModelRetry of a tool", "session, turn, attempt")
@pytest.mark.parametrize("how", HOW)
def test_a_tool_that_asks_to_be_called_again_opens_a_turn_and_not_an_attempt(
    how: str, api: str, model: Model
) -> None:
    tries: list[int] = []

    def look() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ModelRetry("again")
        return "x"

    model.script = lambda asked: [Call("look")] if len(model.arrived) < 3 else "done"
    with tenuto.run() as run:
        HOW[how](agent_of(model, api, tools=[look]))
    assert {asked.headers["x-session-id"] for asked in model.arrived} == {run.session_id}
    assert tried(model) == [("0", "0"), ("1", "0"), ("2", "0")]


@pytest.mark.stamps("pydantic-ai", "{how}, retries of the client", "run, session, turn, attempt")
@pytest.mark.parametrize("how", HOW)
def test_every_attempt_of_a_request_is_of_one_turn(how: str, api: str, model: Model) -> None:
    model.failures = [500, 500]
    with tenuto.run() as run, run.agent("planner") as planner:
        HOW[how](agent_of(model, api))
    assert tried(model) == [("0", "0"), ("0", "1"), ("0", "2")]
    assert {asked.headers["x-session-id"] for asked in model.arrived} == {planner.session_id}
    assert {asked.headers["x-agent-run-id"] for asked in model.arrived} == {run.run_id}


@pytest.mark.stamps("pydantic-ai", "{kind} output, validated again", "session, turn, attempt")
@pytest.mark.parametrize("kind", ["tool", "native", "prompted"])
def test_an_output_that_is_refused_opens_a_turn(kind: str, api: str, model: Model) -> None:
    def script(asked: Asked) -> Any:
        said = {"word": "hi"} if len(model.arrived) > 1 else {"wrong": 1}
        return [Call("final_result", said)] if kind == "tool" else json.dumps(said)

    model.script = script
    outputs = {"tool": Word, "native": NativeOutput(Word), "prompted": PromptedOutput(Word)}
    with tenuto.run() as run:
        answer = agent_of(model, api, output_type=outputs[kind]).run_sync("begin")
    assert answer.output == Word(word="hi")
    assert tried(model) == [("0", "0"), ("1", "0")]
    assert {asked.headers["x-session-id"] for asked in model.arrived} == {run.session_id}


@pytest.mark.stamps("pydantic-ai", "run_sync in threads, tenuto.ContextExecutor", "run, session")
def test_agents_in_threads_are_instances_of_one_run(api: str, model: Model) -> None:
    def work(number: int) -> str:
        with run.agent("worker", instance=number) as worker:
            agent_of(model, api).run_sync(f"work {number}")
            return worker.session_id

    with tenuto.run() as run, tenuto.ContextExecutor(4) as pool:
        ids = list(pool.map(work, range(4)))
    assert len(set(ids)) == len(model.arrived) == 4
    for asked in model.arrived:
        assert asked.headers["x-session-id"] == ids[number_of(asked)]
        assert asked.headers["x-agent-run-id"] == run.run_id


@pytest.mark.stamps("pydantic-ai", "run and run_stream, many at once", "run")
@pytest.mark.anyio
async def test_concurrent_runs_of_one_agent_are_not_mixed(api: str, model: Model) -> None:
    agent = agent_of(model, api)

    async def work(number: int) -> str:
        async with tenuto.run() as run:
            await agent.run(f"work {number}")
            await run_streamed(agent, f"more {number}")
            return run.run_id

    runs = await asyncio.gather(*(work(number) for number in range(8)))
    assert len(model.arrived) == 16
    for asked in model.arrived:
        assert asked.headers["x-agent-run-id"] == runs[number_of(asked)]
