"""One run through each framework: one id on the wire, on every span and in the record."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from agents import Runner, function_tool
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from openinference.instrumentation.langchain import LangChainInstrumentor
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import tenuto
from tenuto.telemetry import instrument, names
from tenuto.trace import read
from tests.frameworks.agents_model import agents_of
from tests.frameworks.scripted import Call, Model, calls_tools
from tests.frameworks.test_langgraph_adapter import chat
from tests.frameworks.test_langgraph_adapter_tools import agent
from tests.loopback import serving

Spans = list[Any]


def through_langgraph(model: Model) -> tenuto.Run:
    @tool
    def look(words: str) -> str:
        """Look."""
        return words

    llm = chat(model)
    graph = StateGraph(MessagesState)
    graph.add_node("planner", agent(llm, [look], name="planner"))
    graph.add_node("verifier", agent(llm, [], name="verifier"))
    graph.add_edge(START, "planner")
    graph.add_edge("planner", "verifier")
    with tenuto.run() as run:
        asyncio.run(graph.compile().ainvoke({"messages": [("user", "hello")]}))
    return run


def through_agents(model: Model) -> tenuto.Run:
    look = function_tool(lambda words: words, name_override="look")
    make = agents_of(model, "chat")
    verifier = make("verifier").as_tool(tool_name="check", tool_description="Check.")
    planner = make("planner", tools=[look, verifier])
    with tenuto.run() as run:
        asyncio.run(Runner.run(planner, "hello", run_config=run.run_config()))
    return run


# What makes spans of its agents and tools, besides those of the model calls.
FRAMEWORKS: dict[str, tuple[Any, type[Any], list[str]]] = {
    "langgraph": (through_langgraph, LangChainInstrumentor, ["planner", "verifier", "look"]),
    "agents": (through_agents, OpenAIAgentsInstrumentor, ["planner", "verifier", "look"]),
}


def answering(model: Model) -> None:
    calls = [Call("look", {"words": "x"}), Call("check", {"input": "y"})]

    def script(asked: Any) -> Any:
        offered = str(asked.body.get("tools") or "")
        return calls_tools(*(one for one in calls if one.tool in offered))(asked)

    model.script = script


def one_run(name: str, folder: str, *, with_us: bool) -> None:
    """Take a run in this process, traced, and check what every span says of it."""
    work, instrumentor, expected = FRAMEWORKS[name]
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    for one in (instrumentor, OpenAIInstrumentor):
        one().instrument(tracer_provider=provider, skip_dep_check=True)
    model = Model()
    answering(model)
    trace = Path(folder) / f"{with_us}.jsonl"
    with serving(model) as model.url, tenuto.record(trace):
        tracing = instrument(provider) if with_us else None
        run = work(model)
        if tracing is not None:
            tracing.close()
    spans: Spans = list(exporter.get_finished_spans())
    shapes = Counter((span.name, span.kind.name) for span in spans)
    print("\n".join(f"{count} {kind} {span}" for (span, kind), count in sorted(shapes.items())))
    if not with_us:
        return
    (recorded,) = read(trace)
    said = [dict(span.attributes) for span in spans]
    assert {one.get(names.RUN) for one in said} == {run.run_id} == {recorded.id}
    assert {asked.headers["x-agent-run-id"] for asked in model.arrived} == {run.run_id}
    assert all(any(part in span.name for span in spans) for part in expected)
    calls = [one for span, one in zip(spans, said, strict=True) if span.name == "chat m"]
    sent = [asked.headers["x-session-id"] for asked in model.arrived]
    assert sorted(one[names.SESSION] for one in calls) == sorted(sent)
    assert {one[names.CONVERSATION] for one in calls} == set(sent)
    paths = {one[names.AGENT_PATH] for one in calls}
    assert (
        paths
        == {session.agent for session in recorded.sessions}
        == {
            "langgraph": {"planner/agent", "verifier/agent"},
            "agents": {"planner", "planner/verifier"},
        }[name]
    )


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_id_on_the_wire_is_on_every_span_and_in_the_record_and_no_span_is_added(
    name: str, tmp_path: Path
) -> None:
    """https://github.com/open-telemetry/opentelemetry-python-genai/issues/513

    In an async graph each step became a trace of its own; and those who trace both a framework
    and openai count double, as in https://github.com/Arize-ai/openinference/issues/2101.
    """
    made: list[str] = []
    for with_us in (False, True):
        code = f"from {__name__} import one_run; one_run({name!r}, {str(tmp_path)!r}, {with_us=})"
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        for variable in ("OTEL_SDK_DISABLED", "OPENAI_AGENTS_DISABLE_TRACING"):
            env.pop(variable, None)
        done = subprocess.run(
            [sys.executable, "-c", code],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            env=env,
        )
        assert done.returncode == 0, done.stderr
        made.append(done.stdout)
    assert made[0] == made[1] != ""
