"""OpenAI Agents SDK through `run.run_config()`: each agent of a run is a session."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    ModelSettings,
    RunConfig,
    Runner,
    SQLiteSession,
    function_tool,
    input_guardrail,
    output_guardrail,
)
from agents.run import ModelInputData

import tenuto
from tests.frameworks.agents_model import MODELS, agents_of, asked_of
from tests.frameworks.scripted import Asked, Call, Model, calls_tools

pytestmark = pytest.mark.parametrize("api", MODELS)


async def streamed(agent: Agent[Any], words: str, **how: Any) -> Any:
    result = Runner.run_streamed(agent, words, **how)
    async for _ in result.stream_events():
        pass
    return result


def in_sync(agent: Agent[Any], words: str, **how: Any) -> Any:
    return Runner.run_sync(agent, words, **how)


def in_async(agent: Agent[Any], words: str, **how: Any) -> Any:
    return asyncio.run(Runner.run(agent, words, **how))


def in_stream(agent: Agent[Any], words: str, **how: Any) -> Any:
    return asyncio.run(streamed(agent, words, **how))


HOW = {"run": in_async, "run_sync": in_sync, "run_streamed": in_stream}
every_way = pytest.mark.parametrize("how", HOW)


def sessions_of(model: Model, name: str) -> list[str | None]:
    return [asked.headers.get("x-session-id") for asked in asked_of(model, name)]


def parents_of(model: Model, name: str) -> set[str | None]:
    return {asked.headers.get("x-parent-session-id") for asked in asked_of(model, name)}


def turns_of(model: Model, name: str) -> list[str]:
    return [asked.turn["n"] for asked in asked_of(model, name)]


def answering(model: Model, answers: dict[str, Any]) -> None:
    """Have each agent answer as scripted when it is first asked, and with words after that."""

    def script(asked: Asked) -> Any:
        for name, answer in answers.items():
            if asked in asked_of(model, name) and not asked.follows_a_tool:
                return answer
        return "done"

    model.script = script


@pytest.mark.stamps("OpenAI Agents SDK", "agent, {how}", "session, parent, turn")
@every_way
def test_an_agent_is_a_session_below_the_run_and_its_turns_go_on(
    how: str, api: str, model: Model
) -> None:
    make = agents_of(model, api)
    model.script = calls_tools(Call("look"))
    planner = make("planner", tools=[function_tool(lambda: "x", name_override="look")])
    with tenuto.run() as run:
        HOW[how](planner, "hello", run_config=run.run_config())
        HOW[how](planner, "again", run_config=run.run_config())
        expected = run.agent("planner").session_id
        at = tenuto.current()
        assert at is not None
        assert at.session_id == run.session_id
    assert sessions_of(model, "planner") == [expected] * 4
    assert turns_of(model, "planner") == ["0", "1", "2", "3"]
    assert parents_of(model, "planner") == {run.session_id}


@pytest.mark.stamps("OpenAI Agents SDK", "hand-over, {how}", "session, parent")
@every_way
def test_an_agent_that_is_handed_over_to_is_a_sibling(how: str, api: str, model: Model) -> None:
    """https://github.com/getsentry/sentry-python/pull/5291

    A span that was stored on the agent was closed by a hand-over or by its next turn.
    """
    make = agents_of(model, api)
    verifier = make("verifier")
    planner = make("planner", handoffs=[verifier])
    answering(model, {"planner": [Call("transfer_to_verifier")]})
    with tenuto.run() as run:
        HOW[how](planner, "hello", run_config=run.run_config())
        expected = run.agent("planner").session_id, run.agent("verifier").session_id
    assert (sessions_of(model, "planner"), sessions_of(model, "verifier")) == (
        [expected[0]],
        [expected[1]],
    )
    assert parents_of(model, "verifier") == {run.session_id}
    assert asked_of(model, "verifier")[0].turn["phase"] == "handoff"


@pytest.mark.anyio
async def test_an_agent_that_a_runner_of_its_own_begins_with_was_not_handed_over_to(
    api: str, model: Model
) -> None:
    make = agents_of(model, api)
    look = function_tool(lambda: "x", name_override="look")
    answering(model, {"planner": [Call("look")]})
    with tenuto.run() as run:
        for name in ("planner", "verifier"):
            agent = make(name, tools=[look])
            await Runner.run(agent, "hello", run_config=run.run_config())
    assert [asked.turn["phase"] for asked in asked_of(model, "verifier")] == ["start"]


@pytest.mark.stamps("OpenAI Agents SDK", "agents as tools, {how}", "session, parent, turn")
@every_way
@pytest.mark.parametrize("guarded", [False, True])
def test_agents_as_tools_side_by_side_are_children_and_instances(
    guarded: bool, how: str, api: str, model: Model
) -> None:
    make = agents_of(model, api)

    @input_guardrail
    async def fine(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)

    more: Any = {"input_guardrails": [fine]} if guarded else {}
    look = function_tool(lambda: "x", name_override="look")
    helper = make("helper", tools=[look], **more)
    tool = helper.as_tool(tool_name="ask", tool_description="Ask.")
    asks = [Call("ask", {"input": "left"}), Call("ask", {"input": "right"})]
    answering(model, {"planner": asks, "helper": [Call("look")]})
    planner = make("planner", tools=[tool], **more)
    with tenuto.run() as run:
        HOW[how](planner, "hello", run_config=run.run_config())
        expected = run.agent("planner").session_id
    assert sessions_of(model, "planner") == [expected] * 2
    assert parents_of(model, "helper") == {expected}
    helped = sessions_of(model, "helper")
    assert sorted(helped.count(one) for one in set(helped)) == [2, 2]
    assert sorted(turns_of(model, "helper")) == ["0", "0", "1", "1"]


@every_way
def test_an_agent_that_is_called_as_a_tool_again_is_another_instance(
    how: str, api: str, model: Model
) -> None:
    make = agents_of(model, api)
    tool = make("helper").as_tool(tool_name="ask", tool_description="Ask.")
    planner = make("planner", tools=[tool])
    answering(model, {"planner": [Call("ask", {"input": "once"})]})
    with tenuto.run() as run:
        HOW[how](planner, "hello", run_config=run.run_config())
        HOW[how](planner, "again", run_config=run.run_config())
    assert len(set(sessions_of(model, "helper"))) == 2
    assert len(set(sessions_of(model, "planner"))) == 1


@pytest.mark.stamps("OpenAI Agents SDK", "guardrails, {how}", "session")
@every_way
def test_a_guardrails_calls_are_auxiliary_and_not_the_agents(
    how: str, api: str, model: Model
) -> None:
    make = agents_of(model, api)
    guard = make("guard")

    async def asks_guard(*_: Any) -> GuardrailFunctionOutput:
        await Runner.run(guard, "check")
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)

    planner = make(
        "planner",
        input_guardrails=[input_guardrail(asks_guard, name="before")],
        output_guardrails=[output_guardrail(asks_guard, name="after")],
    )
    with tenuto.run() as run:
        HOW[how](planner, "hello", run_config=run.run_config())
        HOW[how](planner, "again", run_config=run.run_config())
        expected = [run.agent(name).session_id for name in ("before", "after", "planner")]
    guards = sessions_of(model, "guard")
    assert sorted(guards) == sorted(expected[:2] * 2)
    assert {asked.turn["class"] for asked in asked_of(model, "guard")} == {"auxiliary"}
    assert sessions_of(model, "planner") == [expected[2]] * 2


@every_way
def test_the_users_own_filter_goes_on_to_be_called(how: str, api: str, model: Model) -> None:
    make = agents_of(model, api)

    def upper(data: Any) -> ModelInputData:
        return ModelInputData(data.model_data.input, data.model_data.instructions + "!")

    async def later(data: Any) -> ModelInputData:
        await asyncio.sleep(0)
        return upper(data)

    with tenuto.run() as run:
        for theirs in (upper, later):
            mine = RunConfig(call_model_input_filter=theirs, workflow_name="mine")
            config = run.run_config(run.run_config(mine))
            assert config.workflow_name == "mine"
            assert mine.call_model_input_filter is theirs
            HOW[how](make("planner"), "hello", run_config=config)
        expected = run.agent("planner").session_id
    assert sessions_of(model, "planner!") == [expected] * 2


def test_a_filter_that_fails_fails_as_without_us(api: str, model: Model) -> None:
    def fails(data: Any) -> ModelInputData:
        raise LookupError("theirs")

    with tenuto.run() as run, pytest.raises(LookupError, match="theirs"):
        in_async(
            agents_of(model, api)("planner"),
            "hello",
            run_config=run.run_config(RunConfig(call_model_input_filter=fails)),
        )
    assert model.arrived == []


@pytest.mark.stamps("OpenAI Agents SDK", "several runs with a Session, {how}", "session, turn")
@every_way
def test_several_runs_with_a_memory_of_the_frameworks_keep_one_session(
    how: str, api: str, model: Model
) -> None:
    planner = agents_of(model, api)("planner")
    with tenuto.run() as run:
        for words in ("one", "two", "three"):
            memory = SQLiteSession("remembered")
            HOW[how](planner, words, run_config=run.run_config(), session=memory)
    assert len(set(sessions_of(model, "planner"))) == 1
    assert turns_of(model, "planner") == ["0", "1", "2"]


@pytest.mark.stamps("OpenAI Agents SDK", "retries, {how}", "session, turn, attempt")
@every_way
def test_an_attempt_of_a_failed_call_is_one_of_the_same_turn(
    how: str, api: str, model: Model
) -> None:
    model.failures = [500, 500]
    with tenuto.run() as run:
        HOW[how](agents_of(model, api)("planner"), "hello", run_config=run.run_config())
    tried = [(asked.turn["n"], asked.turn["attempt"]) for asked in model.arrived]
    assert tried == [("0", "0"), ("0", "1"), ("0", "2")]
    assert len(set(sessions_of(model, "planner"))) == 1


@every_way
def test_a_call_that_failed_leaves_nothing_in_its_callers_context(
    how: str, api: str, model: Model
) -> None:
    """https://github.com/braintrustdata/braintrust-sdk-python/issues/621

    What an async callback had set stayed, and later runs nested in it for ever.
    """
    model.failures = [400]
    with tenuto.run() as run:
        with pytest.raises(Exception, match="scripted"):
            HOW[how](agents_of(model, api)("planner"), "hello", run_config=run.run_config())
        at = tenuto.current()
        assert at is not None
        assert at.session_id == run.session_id


@pytest.mark.anyio
async def test_after_a_runner_its_caller_is_where_it_was(api: str, model: Model) -> None:
    make = agents_of(model, api)
    model.script = calls_tools(Call("look"))
    planner = make("planner", tools=[function_tool(lambda: "x", name_override="look")])
    kept: list[Any] = []

    def keeps(data: Any) -> ModelInputData:
        kept.append(data.model_data)
        return data.model_data

    words: Any = [{"role": "user", "content": "own"}]
    with tenuto.run() as run:
        for _ in range(2):
            config = run.run_config(RunConfig(call_model_input_filter=keeps))
            await Runner.run(planner, "hello", run_config=config)
            await make.client.chat.completions.create(model="m", messages=words)
        expected = run.agent("planner").session_id
    assert sessions_of(model, "own") == [run.session_id] * 2
    assert sessions_of(model, "planner") == [expected] * 4


@every_way
def test_what_a_tool_asks_without_a_scope_is_the_runs_and_not_the_agents(
    how: str, api: str, model: Model
) -> None:
    make = agents_of(model, api)
    model.script = calls_tools(Call("look"))

    async def look() -> str:
        """Look."""
        words: Any = [{"role": "user", "content": "own"}]
        return str(await make.client.chat.completions.create(model="m", messages=words))

    planner = make("planner", tools=[function_tool(look)])
    with tenuto.run() as run:
        HOW[how](planner, "hello", run_config=run.run_config())
    assert sessions_of(model, "own") == [run.session_id]


@pytest.mark.anyio
async def test_runs_side_by_side_over_one_agent_are_not_mixed(api: str, model: Model) -> None:
    """https://github.com/openai/openai-agents-js/issues/566

    Headers of a run could only be set on the one default client, for every run at once.
    """
    make = agents_of(model, api)
    tool = make("helper").as_tool(tool_name="ask", tool_description="Ask.")
    planner = make("planner", tools=[tool])
    answering(model, {"planner": [Call("ask", {"input": "x"})]})

    async def work(how: Any) -> str:
        async with tenuto.run() as run:
            await how(planner, "hello", run_config=run.run_config())
            return run.run_id

    runs = await asyncio.gather(*(work(how) for how in (Runner.run, streamed) for _ in range(8)))
    for name, each in (("planner", 2), ("helper", 1)):
        asked = [one.headers["x-agent-run-id"] for one in asked_of(model, name)]
        assert sorted(asked) == sorted(runs * each)


@every_way
def test_a_scope_around_the_runner_is_what_its_agents_are_below(
    how: str, api: str, model: Model
) -> None:
    """https://github.com/Arize-ai/openinference/issues/1372

    What was set around the runner was ignored by its instrumentation.
    """
    with tenuto.run() as run, run.agent("crew") as crew:
        HOW[how](agents_of(model, api)("planner"), "hello", run_config=run.run_config())
        expected = run.agent("planner").session_id
    assert sessions_of(model, "planner") == [expected]
    assert parents_of(model, "planner") == {crew.session_id}


def test_a_streamed_run_belongs_to_the_scope_it_was_started_in(api: str, model: Model) -> None:
    """https://github.com/mlflow/mlflow/pull/22962

    `run_streamed` begins its work at once in a task: what is entered after it comes too late.
    """
    planner = agents_of(model, api)("planner")

    async def late() -> str:
        result = Runner.run_streamed(planner, "hello")
        async with tenuto.run() as run:
            async for _ in result.stream_events():
                pass
        return run.run_id

    asyncio.run(late())
    assert sessions_of(model, "planner") == [None]


@every_way
def test_a_runners_limit_of_time_does_not_hide_the_agent(how: str, api: str, model: Model) -> None:
    limit: Any = {"timeout": 30} if hasattr(ModelSettings(), "timeout") else {}
    planner = agents_of(model, api)("planner", model_settings=ModelSettings(**limit))
    with tenuto.run() as run:
        HOW[how](planner, "hello", run_config=run.run_config())
        expected = run.agent("planner").session_id
    assert sessions_of(model, "planner") == [expected]


def test_what_is_no_run_config_is_refused_with_a_sentence(api: str) -> None:
    for given, words in ((3, "got int"), ({"nope": 1}, "nope")):
        with pytest.raises(tenuto.ConfigError, match=words):
            tenuto.run().run_config(given)
