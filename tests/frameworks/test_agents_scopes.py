"""Whose a call is where runners fail, resume, nest and meet other frameworks."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    RunConfig,
    RunHooks,
    Runner,
    RunState,
    function_tool,
)

import tenuto
from tenuto.adapters import langgraph
from tests.frameworks.agents_model import agents_of, asked_of
from tests.frameworks.scripted import Call, Model, calls_tools
from tests.frameworks.test_agents_adapter import answering, parents_of, sessions_of, streamed
from tests.frameworks.test_langgraph_adapter import NOTHING, chain

pytestmark = pytest.mark.anyio

OWN: Any = [{"role": "user", "content": "own"}]
WAYS = {"run": Runner.run, "run_streamed": streamed}
both = pytest.mark.parametrize("way", WAYS)


@both
async def test_what_follows_a_failed_turn_is_in_its_callers_scope_also_while_the_error_is_kept(
    way: str, model: Model
) -> None:
    """https://github.com/getsentry/sentry-python/pull/5291

    What was stored for a turn outlived it: a kept error keeps the turn's variables.
    """
    make = agents_of(model, "chat")
    planner = make("planner", tools=[function_tool(lambda: "x", name_override="look")])
    kept: list[BaseException] = []

    def script(asked: Any) -> Any:
        # The turn after the tool fails.
        model.failures = [400] if asked.body.get("tools") else []
        return calls_tools(Call("look"))(asked)

    model.script = script

    async def fail() -> None:
        try:
            async with tenuto.run() as run:
                try:
                    await WAYS[way](planner, "hello", run_config=run.run_config())
                except openai.OpenAIError as error:
                    kept.append(error)
                    await make.client.chat.completions.create(model="m", messages=OWN)
                    assert sessions_of(model, "own")[-1] == run.session_id
                    raise
        except openai.OpenAIError:
            await make.client.chat.completions.create(model="m", messages=OWN)

    await fail()
    await make.client.chat.completions.create(model="m", messages=OWN)
    assert len(kept) == 1
    assert len(sessions_of(model, "planner")) == 2
    assert sessions_of(model, "own")[1:] == [None, None]


@pytest.mark.parametrize("first", ["graph", "runner"])
async def test_a_runner_in_a_node_has_its_agents_below_the_node_whichever_was_joined_first(
    first: str, model: Model
) -> None:
    with tenuto.run() as run:
        joins = [langgraph.enable, run.run_config]
        for join in joins if first == "graph" else joins[::-1]:
            join()
    make = agents_of(model, "chat")

    async def node(state: Any) -> Any:
        await Runner.run(make("planner"), "hello", run_config=run.run_config())
        await make.client.chat.completions.create(model="m", messages=OWN)
        return NOTHING

    with tenuto.run() as run:
        await chain(("node", node)).ainvoke(NOTHING)
        with run.agent("node") as above:
            expected = run.agent("planner").session_id
    assert sessions_of(model, "planner") == [expected]
    assert sessions_of(model, "own") == [above.session_id]


@both
async def test_agents_as_tools_that_wait_for_approval_resume_in_their_own_sessions(
    way: str, model: Model
) -> None:
    make = agents_of(model, "chat")

    def look() -> str:
        """Look."""
        return "x"

    helper = make("helper", tools=[function_tool(look, needs_approval=True)])
    tool = helper.as_tool(tool_name="ask", tool_description="Ask.")
    asks = [Call("ask", {"input": "left"}), Call("ask", {"input": "right"})]
    answering(model, {"planner": asks, "helper": [Call("look")]})
    planner = make("planner", tools=[tool])
    with tenuto.run() as run:
        result = await WAYS[way](planner, "hello", run_config=run.run_config())
        state: RunState[Any] = result.to_state()
        for waiting in result.interruptions:
            state.approve(waiting)
        await WAYS[way](planner, state, run_config=run.run_config())
        expected = run.agent("planner").session_id
    helped = sessions_of(model, "helper")
    assert sorted(helped.count(one) for one in set(helped)) == [2, 2]
    assert parents_of(model, "helper") == {expected}


@both
async def test_a_runner_in_a_tool_is_below_its_agent_also_with_a_config_of_its_own(
    way: str, model: Model
) -> None:
    make = agents_of(model, "chat")
    helper = make("helper")
    own = RunConfig(workflow_name="own")
    tools = [
        helper.as_tool(tool_name="ask", tool_description="Ask.", run_config=own),
        function_tool(lambda: Runner.run(helper, "hello"), name_override="call"),
    ]
    asks = [Call("ask", {"input": "left"}), Call("ask", {"input": "right"}), Call("call")]
    answering(model, {"planner": asks})
    with tenuto.run() as run:
        await WAYS[way](make("planner", tools=tools), "hello", run_config=run.run_config())
        expected = run.agent("planner").session_id
    assert len(set(sessions_of(model, "helper"))) == len(asked_of(model, "helper"))
    assert parents_of(model, "helper") == {expected}
    assert own.call_model_input_filter is None


@both
async def test_another_runs_scope_in_a_tool_holds_for_the_runner_in_it(
    way: str, model: Model
) -> None:
    make = agents_of(model, "chat")

    async def call() -> str:
        """Call."""
        async with tenuto.run("other"):
            return str((await WAYS[way](make("helper"), "hello")).final_output)

    answering(model, {"planner": [Call("call")]})
    with tenuto.run() as run:
        planner = make("planner", tools=[function_tool(call)])
        await WAYS[way](planner, "hello", run_config=run.run_config())
    runs = [asked.headers["x-agent-run-id"] for asked in asked_of(model, "helper")]
    assert runs == [tenuto.run("other").run_id]


@both
async def test_what_a_hook_asks_before_the_model_is_not_the_agents(way: str, model: Model) -> None:
    make = agents_of(model, "chat")

    class Hooks(RunHooks[Any]):
        async def on_llm_start(self, *_: Any) -> None:
            await make.client.chat.completions.create(model="m", messages=OWN)

    with tenuto.run() as run:
        config = run.run_config()
        await WAYS[way](make("planner"), "hello", run_config=config, hooks=Hooks())
        expected = run.agent("planner").session_id
    assert sessions_of(model, "own") == [run.session_id]
    assert [asked.turn["n"] for asked in asked_of(model, "planner")] == ["0"]
    assert sessions_of(model, "planner") == [expected]


class InATask(OpenAIChatCompletionsModel):
    """A program's own model, which has its call made in a task of its own."""

    async def get_response(self, *args: Any, **given: Any) -> Any:
        return await asyncio.create_task(super().get_response(*args, **given))


async def test_a_model_that_calls_in_a_task_of_its_own_is_called_by_the_agent(
    model: Model,
) -> None:
    make = agents_of(model, "chat")
    planner = Agent(name="planner", instructions="planner", model=InATask("m", make.client))
    with tenuto.run() as run:
        await Runner.run(planner, "hello", run_config=run.run_config())
        expected = run.agent("planner").session_id
    assert sessions_of(model, "planner") == [expected]


async def test_run_config_can_be_had_while_runners_are_replaced(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fake(*_: Any, **__: Any) -> str:
        return "fake"

    with monkeypatch.context() as patched:
        patched.setattr(Runner, "run", fake)
        for _ in range(3):
            tenuto.run().run_config()
    with tenuto.run() as run:
        await Runner.run(agents_of(model, "chat")("planner"), "hi", run_config=run.run_config())
        expected = run.agent("planner").session_id
    assert sessions_of(model, "planner") == [expected]
