"""The recipes of examples/frameworks, each run as it stands."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import openai
import pytest

import tenuto
from tests.frameworks.scripted import Asked, Call, Model, calls_tools
from tests.frameworks.websocket import serving_websocket

RECIPES = Path(__file__).parents[2] / "examples/frameworks"
# What their models answer.
WORDS: Any = Model().script
ANSWER: Any = calls_tools(Call("Answer", {"answer": "done"}))
SEARCH = calls_tools(Call("search", {"words": "left"}), Call("search", {"words": "right"}))


@pytest.fixture(autouse=True)
def _served_by(monkeypatch: pytest.MonkeyPatch, model: Model) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "k")


def agent_of(asked: Asked) -> str:
    """Return the agent whose name its instructions hold."""
    said = str(asked.body.get("instructions") or asked.items[0]["content"])
    (name,) = [name for name in ("planner", "search", "verifier") if name in said]
    return name


@pytest.mark.stamps("{framework}", "examples/frameworks/{name}.py", "run, session, parent")
@pytest.mark.parametrize(
    ("framework", "name", "package", "script", "searches"),
    [
        ("pydantic-ai", "pydantic_ai_agents", "pydantic_ai", SEARCH, 2),
        ("LangChain", "langchain_chain", "langchain_openai", WORDS, 2),
        ("AutoGen", "autogen_team", "autogen_agentchat", WORDS, 1),
        ("CrewAI", "crewai_crew", "crewai", WORDS, 1),
        ("instructor", "instructor_extract", "instructor", ANSWER, 2),
        ("litellm", "litellm_calls", "litellm", WORDS, 2),
    ],
)
def test_each_agent_of_a_recipe_is_a_session_of_its_own(
    framework: str, name: str, package: str, script: Any, searches: int, model: Model
) -> None:
    pytest.importorskip(package)
    model.script = script
    runpy.run_path(str(RECIPES / f"{name}.py"), run_name="__main__")
    run = tenuto.run("ticket-4711")
    assert {asked.headers["x-agent-run-id"] for asked in model.arrived} == {run.run_id}
    sessions: dict[str, set[str]] = {}
    for asked in model.arrived:
        sessions.setdefault(agent_of(asked), set()).add(asked.headers["x-session-id"])
    assert sessions["planner"] == {run.agent("planner").session_id}
    assert sessions["verifier"] == {run.agent("verifier").session_id}
    assert len(sessions["search"]) == searches
    assert not sessions["search"] & (sessions["planner"] | sessions["verifier"])
    for asked in model.arrived:
        parents = {run.session_id}
        if agent_of(asked) == "search" and script is SEARCH:
            parents = sessions["planner"]
        assert asked.headers["x-parent-session-id"] in parents
        # What goes by `headers()` opens no turn.
        assert ("n" in asked.turn) is not asked.path.endswith("/responses")


@pytest.mark.stamps(
    "OpenAI Agents SDK", "OpenAIResponsesWSModel, tenuto.headers()", "run, session, parent"
)
@pytest.mark.stamps(
    "OpenAI Agents SDK", "examples/frameworks/agents_websocket.py", "run, session, parent"
)
def test_headers_that_are_given_go_with_the_handshake_of_a_websocket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("agents")
    with serving_websocket() as (url, shaken):
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        runpy.run_path(str(RECIPES / "agents_websocket.py"), run_name="__main__")
    run = tenuto.run("ticket-4711")
    expected = [run.agent(name).session_id for name in ("planner", "verifier")]
    assert [headers["x-session-id"] for headers in shaken] == expected
    assert {headers["x-agent-run-id"] for headers in shaken} == {run.run_id}
    assert {headers["x-parent-session-id"] for headers in shaken} == {run.session_id}


@pytest.mark.anyio
async def test_openais_own_websocket_carries_the_headers_that_it_is_given() -> None:
    pytest.importorskip("websockets")
    with serving_websocket() as (url, shaken):
        async with tenuto.wrap(openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k")) as client:
            async with tenuto.run() as run:
                async with client.responses.connect():
                    pass
                async with client.responses.connect(extra_headers=tenuto.headers(url)):
                    pass
    without, given = shaken
    assert "x-session-id" not in without
    assert given["x-session-id"] == run.session_id


def test_every_recipe_is_run_here() -> None:
    names = {path.stem for path in RECIPES.glob("*.py")}
    assert {name for name in names if name not in Path(__file__).read_text("utf-8")} == set()
