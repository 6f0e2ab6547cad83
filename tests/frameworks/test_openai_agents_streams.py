"""openai-agents' streamed runs: they start at once and go on beside their consumer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import Agent, Runner, function_tool

import tenuto
from tests.frameworks.agents_model import MODELS, agents_of, runs_of
from tests.frameworks.scripted import Call, Model, calls_tools

pytestmark = [pytest.mark.parametrize("api", MODELS), pytest.mark.anyio]


def planner_of(model: Model, api: str, look: Any = lambda: "x") -> tuple[Any, Agent[Any]]:
    """Return the maker of agents, and one that calls the model, a tool and the model."""
    model.script = calls_tools(Call("look"))
    make = agents_of(model, api)
    return make, make("planner", tools=[function_tool(look, name_override="look")])


async def consume(result: Any) -> None:
    async for _ in result.stream_events():
        pass


async def test_a_streamed_run_that_another_task_consumes_stays_in_its_run(
    api: str, model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    """https://github.com/openai/openai-agents-python/issues/634

    Behind an endpoint that streams, the token of the current trace was reset in a context
    that had not set it.
    """
    _, agent = planner_of(model, api)

    async def endpoint() -> tuple[str, Any]:
        async with tenuto.run() as run:
            result = Runner.run_streamed(agent, "begin")
            # The consumer has a run of its own open meanwhile.
            async with tenuto.run():
                await asyncio.create_task(consume(result))
            return run.run_id, result

    run_id, _ = await asyncio.create_task(endpoint())
    assert runs_of(model, "planner") == [run_id] * 2
    assert [one for one in caplog.records if one.levelname in ("WARNING", "ERROR")] == []


@pytest.mark.parametrize("end", ["cancelled", "closed", "forgotten"])
async def test_a_consumer_that_leaves_takes_no_run_with_it(
    end: str, api: str, model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    """https://github.com/openai/openai-agents-python/issues/634

    The same, when the reader of the stream disconnects.
    """
    scope_has_ended = asyncio.Event()

    async def look() -> str:
        await scope_has_ended.wait()
        return "x"

    make, agent = planner_of(model, api, look)
    async with tenuto.run() as around:
        async with tenuto.run() as inner:
            result = Runner.run_streamed(agent, "begin")
            events = result.stream_events()
            # Until the model has begun to answer.
            while (await anext(events)).type != "raw_response_event":
                pass
            if end == "cancelled":
                result.cancel()
            closing = [asyncio.create_task(events.aclose())] if end == "closed" else []
        del events
        scope_has_ended.set()
        # Unless it was told to stop, its second call is made here, in no run that is open.
        await asyncio.wait([result.run_loop_task, *closing])
        await Runner.run(make("verifier"), "verify")
    await Runner.run(make("outsider"), "outside")
    assert set(runs_of(model, "planner")) <= {inner.run_id, None}
    assert runs_of(model, "planner")[0] == inner.run_id
    assert runs_of(model, "verifier") == [around.run_id]
    assert runs_of(model, "outsider") == [None]
    assert [one for one in caplog.records if one.levelname in ("WARNING", "ERROR")] == []


async def test_a_scope_entered_after_a_streamed_run_has_started_is_too_late(
    api: str, model: Model
) -> None:
    """https://github.com/mlflow/mlflow/pull/22962

    A streamed run starts its work at once, in a task, with the context of that moment. So
    its scope has to be entered before and to be left after its last event.
    """
    _, agent = planner_of(model, api)
    early = Runner.run_streamed(agent, "begin")
    async with tenuto.run():
        await consume(early)
    assert runs_of(model, "planner") == [None] * 2

    model.arrived.clear()
    async with tenuto.run():
        late = Runner.run_streamed(agent, "begin")
    async with tenuto.run():
        await consume(late)
    assert runs_of(model, "planner") == [None] * 2

    model.arrived.clear()
    async with tenuto.run() as run:
        await consume(Runner.run_streamed(agent, "begin"))
    assert runs_of(model, "planner") == [run.run_id] * 2


async def test_streamed_runs_consumed_in_turn_by_one_task_are_not_mixed(
    api: str, model: Model
) -> None:
    _, agent = planner_of(model, api)

    async with tenuto.run() as left:
        first = Runner.run_streamed(agent, "left").stream_events()
        async with tenuto.run() as right:
            second = Runner.run_streamed(agent, "right").stream_events()
            open_streams = [first, second]
            while open_streams:
                for events in list(open_streams):
                    if await anext(events, None) is None:
                        open_streams.remove(events)
    sides = {left.run_id: "left", right.run_id: "right"}
    assert len(model.arrived) == 4
    for asked in model.arrived:
        (words,) = [one["content"] for one in asked.items if one.get("role") == "user"]
        assert sides[asked.headers["x-agent-run-id"]] == words
