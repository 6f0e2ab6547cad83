"""Spans of our own, which are asked for: a run's, an agent's, and a wait's for a tool."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import logging
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

import tenuto
from tenuto.telemetry import instrument
from tests.calls import SYNC_CALLS, USER, make
from tests.frameworks.scripted import Call, calls_tools
from tests.loopback import serving
from tests.wrappers.spans import MAKERS, Made, Serving, made

TOOLS: Any = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]


@pytest.fixture
def spans() -> Iterator[Made]:
    one = made()
    with instrument(one.provider, own_spans=True, workflow="triage"):
        yield one


@pytest.fixture(autouse=True)
def nothing_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    before = context.get_current()
    yield
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []
    assert context.get_current() == before


def tree(spans: list[ReadableSpan], above: int | None = None) -> list[Any]:
    """Return the spans as nested lists: each name before what is below it."""
    found: list[Any] = []
    for span in spans:
        parent = span.parent.span_id if span.parent is not None else None
        if parent == above:
            found += [span.name, *([below] if (below := tree(spans, span.context.span_id)) else [])]
    return found


def current_name() -> str | None:
    return getattr(trace.get_current_span(), "name", None)


def test_a_run_and_its_agents_are_spans_above_those_of_others(spans: Made) -> None:
    tracer = spans.provider.get_tracer("theirs")
    with tenuto.run("ticket-4711") as run:
        with run.agent("planner") as planner:
            tracer.start_span("chat m").end()
            with run.agent("search"):
                tracer.start_span("chat m").end()
        with run.agent("verifier"):
            tracer.start_span("chat m").end()
    assert tree(spans.spans) == [
        "invoke_workflow triage",
        [
            "invoke_agent planner",
            ["chat m", "invoke_agent search", ["chat m"]],
            "invoke_agent verifier",
            ["chat m"],
        ],
    ]
    whole, of_planner, *_ = spans.spans
    assert whole.kind is of_planner.kind is SpanKind.INTERNAL
    assert dict(whole.attributes or {}) == {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": "triage",
        "gen_ai.conversation.id": run.session_id,
        "tenuto.run.id": run.run_id,
        "tenuto.session.id": run.session_id,
    }
    assert dict(of_planner.attributes or {}) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "planner",
        "gen_ai.conversation.id": planner.session_id,
        "tenuto.run.id": run.run_id,
        "tenuto.session.id": planner.session_id,
        "tenuto.session.parent.id": run.session_id,
        "tenuto.agent.path": "planner",
    }


@pytest.mark.parametrize("maker", MAKERS)
def test_own_spans_come_on_top_of_the_count_that_others_make(maker: str) -> None:
    counts: list[int] = []
    model = Serving()
    with serving(model) as model.url:
        for own in (None, False, True):
            with make(openai.OpenAI, model.url) as client, contextlib.ExitStack() as stack:
                tenuto.wrap(client)
                theirs = stack.enter_context(MAKERS[maker](client))
                if own is not None:
                    stack.enter_context(instrument(theirs.provider, own_spans=own))
                with tenuto.run() as run, run.agent("planner"):
                    SYNC_CALLS["create"](client)
                counts.append(len(theirs.spans))
    assert counts == [1, 1, 3]
    *_, chat = theirs.spans
    assert chat.parent is not None
    assert {span.context.trace_id for span in theirs.spans} == {chat.context.trace_id}


def test_what_a_framework_has_a_span_for_gets_no_second_one(spans: Made) -> None:
    tracer = spans.provider.get_tracer("a framework")
    graph = {"gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": "graph"}
    planner = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"}
    with tracer.start_as_current_span("a graph", attributes=graph), tenuto.run() as run:
        with tracer.start_as_current_span("a node", attributes=planner), run.agent("planner"):
            with run.agent("search"):
                pass
    assert tree(spans.spans) == ["a graph", ["a node", ["invoke_agent search"]]]


def test_a_scope_that_is_entered_within_itself_is_one_span_and_again_later_another(
    spans: Made,
) -> None:
    with tenuto.run() as run:
        planner = run.agent("planner")
        for _ in range(2):
            with planner, planner, run:
                pass
    agents = ["invoke_agent planner", ["invoke_workflow triage"]]
    assert tree(spans.spans) == ["invoke_workflow triage", [*agents, *agents]]


def test_an_error_that_leaves_a_scope_is_told_and_passes(spans: Made) -> None:
    with tenuto.run() as run:
        with pytest.raises(KeyError), run.agent("planner"):
            raise KeyError
    whole, planner = spans.spans
    assert (planner.attributes or {})["error.type"] == "KeyError"
    assert planner.status.status_code is StatusCode.ERROR
    assert whole.status.status_code is StatusCode.UNSET


def test_what_is_set_in_the_context_meanwhile_is_left_there(spans: Made) -> None:
    with tenuto.run():
        token = context.attach(context.set_value("theirs", "kept"))
    assert context.get_value("theirs") == "kept"
    assert current_name() is None
    context.detach(token)
    context.attach(context.Context())


def test_scopes_that_are_left_out_of_order_leave_no_span_behind(spans: Made) -> None:
    run = tenuto.run()
    run.__enter__()
    planner = run.agent("planner")
    planner.__enter__()
    run.__exit__(None, None, None)
    assert current_name() == "invoke_agent planner"
    planner.__exit__(None, None, None)
    with tenuto.run():
        pass
    assert [span.parent is None for span in spans.spans] == [True, False, True]


def test_a_scope_that_is_dropped_and_never_left_is_not_kept(spans: Made) -> None:
    run = tenuto.run()
    contextvars.copy_context().run(run.__enter__)
    dropped = weakref.ref(run)
    del run
    gc.collect()
    assert dropped() is None
    assert spans.spans == []


def test_a_dropped_generator_leaves_its_consumer_its_span(spans: Made) -> None:
    """https://github.com/open-telemetry/opentelemetry-python/issues/2606

    A stream that holds a span is dropped after its first item, and the span is detached when and
    where the collector finds it: an error is logged and the consumer's span is lost.
    """

    def stream() -> Iterator[int]:
        with tenuto.run() as run, run.agent("streamer"):
            yield 1
            yield 2

    tracer = spans.provider.get_tracer("theirs")
    with tracer.start_as_current_span("consumer"):
        items = stream()
        next(items)
        assert current_name() == "consumer"
        tracer.start_span("between").end()
        del items
        gc.collect()
        assert current_name() == "consumer"
    streamed = ["invoke_workflow triage", ["invoke_agent streamer"]]
    assert tree(spans.spans) == ["consumer", [*streamed, "between"]]


@pytest.mark.parametrize("way", [lambda body: body, tenuto.ctxgen], ids=["plain", "ctxgen"])
@pytest.mark.anyio
async def test_a_stream_closed_by_another_task_neither_raises_nor_logs(
    way: Any, spans: Made
) -> None:
    """https://github.com/langfuse/langfuse/issues/13590

    A span that an async generator holds is detached by the task that closes it, which never
    attached it: `ValueError`, or an ERROR in the log, on each broken-off stream.
    """

    async def stream() -> AsyncIterator[int]:
        async with tenuto.run() as run, run.agent("streamer"):
            seen.append(current_name())
            yield 1
            yield 2

    seen: list[str | None] = []
    with spans.provider.get_tracer("theirs").start_as_current_span("consumer"):
        items = way(stream())
        await anext(items)
        assert current_name() == "consumer"
        await asyncio.create_task(items.aclose())
        assert current_name() == "consumer"
    streamed = ["invoke_workflow triage", ["invoke_agent streamer"]]
    assert tree(spans.spans) == ["consumer", streamed]
    # In a context of its own a body's span may be current.
    assert seen == ["consumer" if way is not tenuto.ctxgen else "invoke_agent streamer"]


@pytest.mark.parametrize("ending", ["break", "error", "cancelled"])
@pytest.mark.anyio
async def test_a_consumer_that_goes_away_leaves_no_span_open(ending: str, spans: Made) -> None:
    """https://github.com/Arize-ai/openinference/issues/3078

    `use_span` stands around a `yield`: a consumer that breaks off, fails or is cancelled keeps
    the stream's span as its own, or its detach fails in the log.
    """

    async def stream() -> AsyncIterator[int]:
        async with tenuto.run() as run, run.agent("streamer"):
            for number in range(3):
                yield number

    async def consume() -> None:
        async with contextlib.aclosing(stream()) as items:
            async for _ in items:
                if ending == "break":
                    break
                if ending == "error":
                    raise ValueError
                await asyncio.Event().wait()

    consumer = asyncio.create_task(consume())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    consumer.cancel()
    await asyncio.gather(consumer, return_exceptions=True)
    assert tree(spans.spans) == ["invoke_workflow triage", ["invoke_agent streamer"]]


@pytest.mark.anyio
async def test_a_streamed_run_consumed_by_another_task_is_clean(spans: Made) -> None:
    """https://github.com/openai/openai-agents-python/issues/634

    A run is begun in an endpoint and its events are consumed by another task, which leaves what
    the first entered: the token of the trace is of a different context.
    """
    run = tenuto.run()
    await run.__aenter__()

    async def consume() -> None:
        async with run.agent("streamer"):
            await asyncio.sleep(0)
        await run.__aexit__(None, None, None)

    await asyncio.create_task(consume())
    # The task that entered still has the span, which has ended; the next scope is not below it.
    with tenuto.run():
        pass
    assert tree(spans.spans) == [
        "invoke_workflow triage",
        ["invoke_agent streamer"],
        "invoke_workflow triage",
    ]


@pytest.mark.anyio
async def test_parallel_agents_are_siblings(spans: Made) -> None:
    async def work(number: int) -> None:
        async with run.agent("worker", instance=number):
            await asyncio.sleep(0)

    async with tenuto.run() as run:
        await asyncio.gather(*(work(number) for number in range(5)))
    assert tree(spans.spans) == ["invoke_workflow triage", ["invoke_agent worker"] * 5]


def test_a_function_that_a_generator_calls_has_its_span_current(spans: Made) -> None:
    def work() -> None:
        with run.agent("worker"):
            spans.provider.get_tracer("theirs").start_span("chat m").end()

    def steps() -> Iterator[None]:
        work()
        yield

    with tenuto.run() as run:
        list(steps())
    below = ["invoke_agent worker", ["chat m"]]
    assert tree(spans.spans) == ["invoke_workflow triage", below]


def tool_turns(client: Any, between: Any = lambda: None) -> None:
    messages: Any = [*USER]
    answer = client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
    message = answer.choices[0].message
    between()
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in message.tool_calls
    ]
    messages = [*messages, message.model_dump(exclude_none=True), *results]
    client.chat.completions.create(model="m", messages=messages, tools=TOOLS)


@pytest.mark.parametrize("maker", [None, *MAKERS])
def test_the_wait_for_a_tool_is_a_span_beside_the_calls(maker: str | None) -> None:
    model = Serving(calls_tools(Call("weather"), Call("news")))
    with serving(model) as model.url, make(openai.OpenAI, model.url) as client:
        tenuto.wrap(client)
        with contextlib.nullcontext(made()) if maker is None else MAKERS[maker](client) as spans:
            with instrument(spans.provider, own_spans=True):
                with tenuto.run() as run, run.agent("planner") as planner:
                    tool_turns(client)
                found = spans.spans
    agent = next(span for span in found if span.name == "invoke_agent planner")
    tools = [span for span in found if span.name.startswith("execute_tool")]
    assert sorted(span.name for span in tools) == ["execute_tool news", "execute_tool weather"]
    for tool in tools:
        assert tool.parent is not None
        assert tool.parent.span_id == agent.context.span_id
        assert (tool.attributes or {})["tenuto.session.id"] == planner.session_id
        assert agent.start_time < tool.start_time <= tool.end_time <= agent.end_time  # type: ignore[operator]
    assert len(found) == 4 + (2 if maker else 0)


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("execute_tool weather", {"gen_ai.operation.name": "execute_tool"}),
        ("running tool", {"gen_ai.tool.name": "weather"}),
        ("weather", {"openinference.span.kind": "TOOL"}),
        ("weather", {"langfuse.observation.type": "tool"}),
    ],
)
@pytest.mark.parametrize("late", [False, True], ids=["at its start", "later"])
def test_a_tool_that_somebody_makes_a_span_of_gets_no_second_one(
    name: str, attributes: dict[str, str], late: bool, spans: Made
) -> None:
    def tool() -> None:
        tracer = spans.provider.get_tracer("theirs")
        with tracer.start_as_current_span(name, attributes=None if late else attributes) as span:
            span.set_attributes(attributes)

    model = Serving(calls_tools(Call("weather")))
    with serving(model) as model.url, make(openai.OpenAI, model.url) as client:
        with tenuto.run():
            tool_turns(tenuto.wrap(client), between=tool)
    assert tree(spans.spans) == ["invoke_workflow triage", [name]]


def test_retries_are_events_of_the_agent_s_span_where_no_call_has_one(spans: Made) -> None:
    model = Serving(failures=[500, 429])
    with serving(model) as model.url, make(openai.OpenAI, model.url) as client:
        with tenuto.run() as run, run.agent("planner"):
            SYNC_CALLS["create"](tenuto.wrap(client))
    planner = spans.spans[-1]
    assert [(one.attributes or {})["tenuto.retry.reason"] for one in planner.events] == [
        "500",
        "429",
    ]
    assert "tenuto.turn.index" not in (planner.attributes or {})
    assert not any("usage" in name for name in planner.attributes or {})
