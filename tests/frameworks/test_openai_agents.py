"""openai-agents: tools, nested agents, hand-offs, guardrails and retries keep a run's keys."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import openai
import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    ModelRetrySettings,
    ModelSettings,
    RunConfig,
    RunHooks,
    Runner,
    function_tool,
    input_guardrail,
    set_default_openai_api,
    set_default_openai_client,
    set_trace_processors,
)
from agents.retry import ModelRetryBackoffSettings, retry_policies
from agents.tool_context import ToolContext

import tenuto
from tests.frameworks.agents_model import MODELS, agents_of, asked_of, runs_of
from tests.frameworks.scripted import Asked, Call, Model, calls_tools

pytestmark = pytest.mark.parametrize("api", MODELS)

# Nothing is sent to where traces go by default.
set_trace_processors([])


async def stream_through(agent: Agent[Any], words: str, **more: Any) -> Any:
    result = Runner.run_streamed(agent, words, **more)
    async for _ in result.stream_events():
        pass
    return result


def started(how: str, agent: Agent[Any], words: str = "begin", **more: Any) -> None:
    if how == "run":
        asyncio.run(Runner.run(agent, words, **more))
    elif how == "run_sync":
        Runner.run_sync(agent, words, **more)
    else:
        asyncio.run(stream_through(agent, words, **more))


HOW = ("run", "run_sync", "run_streamed")


@pytest.mark.parametrize("tracing", [False, True])
@pytest.mark.parametrize("how", HOW)
def test_the_requests_of_an_agent_are_the_turns_of_the_session_around_it(
    how: str, tracing: bool, api: str, model: Model
) -> None:
    """https://github.com/Arize-ai/openinference/issues/1372

    What was around the runner was ignored by the instrumentation of its agents.
    """
    model.script = calls_tools(Call("look", {"where": "here"}))
    agent = agents_of(model, api)(
        "planner", tools=[function_tool(lambda where: "x", name_override="look")]
    )
    with tenuto.run() as run, run.agent("planner") as session:
        started(how, agent, run_config=RunConfig(tracing_disabled=not tracing))
    started(how, agent)
    first, second, *unmarked = model.arrived
    for asked, n, phase in ((first, "0", "start"), (second, "1", "tool")):
        assert asked.headers["x-agent-run-id"] == run.run_id
        assert asked.headers["x-session-id"] == session.session_id
        assert (asked.turn["n"], asked.turn["phase"]) == (n, phase)
    assert [asked.markers for asked in unmarked] == [{}] * 2


@pytest.mark.parametrize("how", HOW)
def test_the_default_client_is_marked_when_it_is_wrapped(how: str, api: str, model: Model) -> None:
    set_default_openai_client(agents_of(model, api).client, use_for_tracing=False)
    set_default_openai_api("chat_completions" if api == "chat" else "responses")
    model.failures = [500, 500]
    with tenuto.run() as run:
        started(how, Agent(name="planner", instructions="planner", model="m"))
    assert runs_of(model, "planner") == [run.run_id] * 3
    assert [asked.turn["attempt"] for asked in model.arrived] == ["0", "1", "2"]


@pytest.mark.parametrize("how", HOW)
def test_a_sync_tool_that_calls_the_model_is_in_the_run_and_in_its_own_session(
    how: str, api: str, model: Model
) -> None:
    """https://github.com/openai/openai-agents-python/pull/2387

    Sync tools are off-loaded to threads, and once lost the context there.
    """
    client = tenuto.wrap(openai.OpenAI(base_url=model.base_url, api_key="k"))
    model.script = calls_tools(Call("find"), Call("find"))
    calls: list[str] = []

    @function_tool
    def find(context: ToolContext[Any]) -> str:
        """Find."""
        calls.append(context.tool_call_id)
        with run.agent("search", instance=context.tool_call_id):
            words: Any = [{"role": "user", "content": "search"}]
            return str(client.chat.completions.create(model="m", messages=words))

    with client, tenuto.run() as run:
        started(how, agents_of(model, api)("planner", tools=[find]))
        expected = {run.agent("search", instance=call).session_id for call in calls}
    assert runs_of(model, "search") == [run.run_id] * 2
    assert {asked.headers["x-session-id"] for asked in asked_of(model, "search")} == expected
    assert len(expected) == 2
    planner = asked_of(model, "planner")
    assert {asked.headers["x-session-id"] for asked in planner} == {run.session_id}


@pytest.mark.parametrize("how", HOW)
def test_agents_used_as_tools_side_by_side_stay_in_the_run(
    how: str, api: str, model: Model
) -> None:
    make = agents_of(model, api)
    helper = make("helper")
    tool = helper.as_tool(tool_name="ask", tool_description="Ask.")
    model.script = calls_tools(Call("ask", {"input": "left"}), Call("ask", {"input": "right"}))
    with tenuto.run() as run:
        started(how, make("planner", tools=[tool]))
    assert runs_of(model, "helper") == [run.run_id] * 2
    assert runs_of(model, "planner") == [run.run_id] * 2


@pytest.mark.parametrize("how", HOW)
def test_a_nested_runner_in_a_scope_of_its_own_is_a_child_of_the_agent_that_called_it(
    how: str, api: str, model: Model
) -> None:
    make = agents_of(model, api)
    helper = make("helper")
    model.script = calls_tools(Call("ask"), Call("ask"))
    calls: list[str] = []

    @function_tool
    async def ask_helper(context: ToolContext[Any]) -> str:
        """Ask."""
        calls.append(context.tool_call_id)
        async with run.agent("helper", instance=context.tool_call_id):
            return str((await Runner.run(helper, "help")).final_output)

    ask_helper.name = "ask"
    with tenuto.run() as run, run.agent("planner") as planner:
        started(how, make("planner", tools=[ask_helper]))
        expected = {run.agent("helper", instance=call).session_id for call in calls}
    helped = asked_of(model, "helper")
    assert {asked.headers["x-session-id"] for asked in helped} == expected
    assert [asked.headers["x-parent-session-id"] for asked in helped] == [planner.session_id] * 2
    own = asked_of(model, "planner")
    assert {asked.headers["x-session-id"] for asked in own} == {planner.session_id}


@pytest.mark.parametrize("how", HOW)
def test_agents_that_hand_over_hold_nothing_of_the_run_they_were_used_in(
    how: str, api: str, model: Model
) -> None:
    """https://github.com/getsentry/sentry-python/pull/5291

    A span that was stored on the agent was closed by a hand-over or by its next turn.
    """
    make = agents_of(model, api)
    verifier = make("verifier")
    planner = make("planner", handoffs=[verifier])
    before = copy.copy(vars(planner)), copy.copy(vars(verifier))
    hand_over = [Call("transfer_to_verifier")]
    model.script = lambda asked: hand_over if asked in asked_of(model, "planner") else "good"
    runs = []
    for _ in range(3):
        with tenuto.run() as run:
            started(how, planner)
        runs.append(run.run_id)
    assert runs_of(model, "planner") == runs_of(model, "verifier") == runs
    assert (vars(planner), vars(verifier)) == before


@pytest.mark.parametrize("how", HOW)
def test_a_guardrail_beside_the_agent_keeps_its_scope_to_itself(
    how: str, api: str, model: Model
) -> None:
    make = agents_of(model, api)
    guard = make("guard")
    opened: list[str] = []

    @input_guardrail
    async def check(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        async with run.agent("guard") as scope:
            await Runner.run(guard, "check")
        opened.append(scope.session_id)
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)

    with tenuto.run() as run:
        started(how, make("planner", input_guardrails=[check]))
    assert [asked.headers["x-session-id"] for asked in asked_of(model, "guard")] == opened
    assert len(opened) == 1
    planner = [asked.headers["x-session-id"] for asked in asked_of(model, "planner")]
    assert planner == [run.session_id]


@pytest.mark.parametrize("how", HOW)
def test_an_attempt_of_the_runners_own_retries_is_one_of_the_same_turn(
    how: str, api: str, model: Model
) -> None:
    """https://github.com/langchain-ai/langgraph/issues/8702

    Work that an outer layer tries again must not come out as new work.
    """
    model.failures = [500, 500]
    retry = ModelRetrySettings(
        max_retries=3,
        backoff=ModelRetryBackoffSettings(initial_delay=0.001, max_delay=0.001, jitter=False),
        policy=retry_policies.http_status([500]),
    )
    agent = agents_of(model, api, max_retries=0)(
        "planner", model_settings=ModelSettings(retry=retry)
    )
    with tenuto.run() as run:
        started(how, agent)
    assert runs_of(model, "planner") == [run.run_id] * 3
    tried = [(asked.turn["n"], asked.turn["attempt"]) for asked in model.arrived]
    assert tried == [("0", "0"), ("0", "1"), ("0", "2")]


@pytest.mark.parametrize("how", HOW)
def test_calls_that_hooks_make_later_are_in_the_run(how: str, api: str, model: Model) -> None:
    """https://github.com/NousResearch/hermes-agent/issues/81730

    The scope was around the making of the root only and had ended when hooks made its
    children. A run is open as long as its work.
    """
    make = agents_of(model, api)
    model.script = calls_tools(Call("look"))

    class Hooks(RunHooks[Any]):
        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
            words: Any = [{"role": "user", "content": "hook"}]
            async with run.agent("hook"):
                await make.client.chat.completions.create(model="m", messages=words)

    planner = make("planner", tools=[function_tool(lambda: "x", name_override="look")])
    with tenuto.run() as run:
        started(how, planner, hooks=Hooks())
        expected = run.agent("hook").session_id
    assert [asked.headers["x-session-id"] for asked in asked_of(model, "hook")] == [expected]
    own = [asked.headers["x-session-id"] for asked in asked_of(model, "planner")]
    assert own == [run.session_id] * 2


@pytest.mark.parametrize("how", ["run", "run_streamed"])
@pytest.mark.anyio
async def test_concurrent_runs_of_one_agent_and_one_client_are_not_mixed(
    how: str, api: str, model: Model
) -> None:
    """https://github.com/openai/openai-agents-js/issues/566

    Headers of a run could only be set on the one default client, for every run at once.
    """
    model.script = calls_tools(Call("look"))
    make = agents_of(model, api)
    agent = make("planner", tools=[function_tool(lambda: "x", name_override="look")])

    async def work(number: int) -> str:
        async with tenuto.run() as run:
            if how == "run":
                await Runner.run(agent, f"work {number}")
            else:
                await stream_through(agent, f"work {number}")
            return run.run_id

    runs = await asyncio.gather(*(work(number) for number in range(8)))
    assert len(set(runs)) == 8
    assert len(model.arrived) == 16

    def number_of(asked: Asked) -> int:
        (words,) = [one["content"] for one in asked.items if one.get("role") == "user"]
        return int(words.split()[-1])

    for asked in model.arrived:
        assert asked.headers["x-agent-run-id"] == runs[number_of(asked)]
