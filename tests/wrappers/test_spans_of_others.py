"""What the spans of others are given, beside each of those who make them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan

import tenuto
from tenuto.telemetry import instrument
from tenuto.telemetry.names import CACHED_SHARE, CONVERSATION, PARENT_SESSION, RETRY, SESSION
from tests.calls import ASYNC_CALLS, CHAT, SYNC_CALLS, USER, make
from tests.loopback import serving
from tests.wrappers.spans import MAKERS, Made, Serving, made

either_order = pytest.mark.parametrize("ours_first", [True, False], ids=["ours first", "last"])
each_maker = pytest.mark.parametrize("maker", MAKERS)


@contextlib.contextmanager
def traced(
    kind: type[Any], maker: str, url: str, *, ours: bool, ours_first: bool = True
) -> Iterator[tuple[Any, Made]]:
    """Give a wrapped client whose calls `maker` makes spans of, with ours on them or not."""
    with contextlib.ExitStack() as stack:
        client = make(kind, url)
        if ours_first:
            tenuto.wrap(client)
        spans = stack.enter_context(MAKERS[maker](client))
        if not ours_first:
            tenuto.wrap(client)
        if ours:
            stack.enter_context(instrument(spans.provider))
        yield client, spans


def shape(spans: list[ReadableSpan]) -> list[tuple[Any, ...]]:
    return [(one.name, one.kind, one.parent is None, one.status.status_code) for one in spans]


def said(span: ReadableSpan) -> dict[str, Any]:
    return {
        name: value
        for name, value in (span.attributes or {}).items()
        if name.startswith(("tenuto.", "gen_ai.conversation", "gen_ai.agent"))
    }


def recorded_sessions(file: Path) -> list[Any]:
    return [json.loads(line)["session_id"] for line in file.read_text().splitlines()]


@either_order
@each_maker
@pytest.mark.parametrize("call", SYNC_CALLS)
def test_all_spans_of_a_call_carry_the_id_on_the_wire_and_in_the_record_and_none_is_added(
    call: str, maker: str, ours_first: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, file = Serving(), tmp_path / "calls.jsonl"
    shapes: list[Any] = []
    with serving(model) as model.url:
        for ours in (False, True):
            with (
                traced(openai.OpenAI, maker, model.url, ours=ours, ours_first=ours_first) as (
                    client,
                    spans,
                ),
                tenuto.record(file) as recorder,
            ):
                with tenuto.run() as run, run.agent("planner") as agent:
                    SYNC_CALLS[call](client)
                recorder.flush()
                shapes.append(shape(spans.spans))
    assert shapes[1] == shapes[0]
    for span in spans.spans:
        assert said(span)[SESSION] == agent.session_id
        assert said(span)[PARENT_SESSION] == run.session_id
        assert said(span)[CONVERSATION] == agent.session_id
    assert model.arrived[-1].headers["x-session-id"] == agent.session_id
    if call != "embeddings":
        assert recorded_sessions(file)[-1] == agent.session_id
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


@either_order
@each_maker
@pytest.mark.parametrize("call", ["create", "stream=True", "stream()", "raw", "responses.stream()"])
@pytest.mark.anyio
async def test_an_async_call_is_told_its_turn_its_tries_and_its_answer_on_one_span(
    call: str, maker: str, ours_first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model = Serving(failures=[503])
    with serving(model) as model.url:
        with traced(openai.AsyncOpenAI, maker, model.url, ours=True, ours_first=ours_first) as (
            client,
            spans,
        ):
            async with tenuto.run() as run, run.agent("planner") as agent:
                await ASYNC_CALLS[call](client)
            await client.close()
    span, *late = spans.spans
    expected = {
        "tenuto.run.id": run.run_id,
        "tenuto.session.id": agent.session_id,
        "tenuto.session.parent.id": run.session_id,
        "tenuto.agent.path": "planner",
        "gen_ai.conversation.id": agent.session_id,
        "gen_ai.agent.name": "planner",
        "tenuto.turn.index": 0,
        "tenuto.turn.attempt": 1,
        "tenuto.turn.phase": "start",
        "tenuto.served.rank": 1,
        "tenuto.served.home": 2,
        "tenuto.served.why": "moved",
        "tenuto.prompt.cached_share": 0.75,
    }
    if maker == "logfire" and "stream" in call:
        # Its span ends when the stream begins; what tells of the stream is a log.
        del expected[CACHED_SHARE]
        assert len(late) == 1
    else:
        assert late == []
    assert said(span) == expected
    retries = [dict(event.attributes or {}) for event in span.events if event.name == RETRY]
    turn = {"tenuto.turn.index": 0, "tenuto.turn.attempt": 1}
    assert retries == [{**turn, "tenuto.retry.reason": "503"}]
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("makers", [[*MAKERS], [*MAKERS][::-1]], ids=["one way", "the other"])
@either_order
@pytest.mark.parametrize("call", ["create", "stream()", "raw", "responses"])
def test_all_who_make_spans_at_once_have_one_id_on_all_of_them(
    call: str, ours_first: bool, makers: list[str]
) -> None:
    shapes: list[Any] = []
    model = Serving()
    with serving(model) as model.url:
        for ours in (False, True):
            model.failures = [500]
            with make(openai.OpenAI, model.url) as client, contextlib.ExitStack() as stack:
                if ours_first:
                    tenuto.wrap(client)
                theirs = [stack.enter_context(MAKERS[maker](client)) for maker in makers]
                tenuto.wrap(client)
                for one in theirs if ours else ():
                    stack.enter_context(instrument(one.provider))
                with tenuto.run() as run, run.agent("planner") as agent:
                    SYNC_CALLS[call](client)
                made_by = [one.spans for one in theirs]
                shapes.append([shape(spans) for spans in made_by])
    assert shapes[1] == shapes[0]
    # In a call of Logfire's OpenInference makes none.
    assert [bool(spans) for spans in made_by].count(True) == 3
    found = [span for spans in made_by for span in spans]
    assert {said(span)[SESSION] for span in found} == {agent.session_id}
    assert {said(span)["tenuto.run.id"] for span in found} == {run.run_id}
    # A turn and its retries are told once, on the one that is next to the request.
    assert sum("tenuto.turn.index" in said(span) for span in found) == 1
    assert sum(event.name == RETRY for span in found for event in span.events) == 1


@each_maker
@pytest.mark.anyio
async def test_fifty_concurrent_runs_of_one_client_have_each_their_own_spans(maker: str) -> None:
    async def work(number: int) -> tuple[str, str]:
        async with tenuto.run(), tenuto.run().agent(f"agent {number}") as agent:
            await ASYNC_CALLS["stream()" if number % 2 else "create"](client)
            return agent.session_id, agent.agent

    model = Serving()
    with serving(model) as model.url:
        with traced(openai.AsyncOpenAI, maker, model.url, ours=True) as (client, spans):
            expected = await asyncio.gather(*(work(number) for number in range(50)))
            await client.close()
    turns = [said(span) for span in spans.spans if "tenuto.turn.index" in said(span)]
    found = [(one["tenuto.session.id"], one["tenuto.agent.path"]) for one in turns]
    assert sorted(found) == sorted(expected)
    assert {one["tenuto.turn.attempt"] for one in turns} == {0}


@each_maker
def test_spans_made_in_threads_are_of_the_session_that_was_carried_there(maker: str) -> None:
    model = Serving()
    with serving(model) as model.url, tenuto.ContextExecutor(4) as pool:
        with traced(openai.OpenAI, maker, model.url, ours=True) as (client, spans):
            expected: list[str] = []
            futures: list[Any] = []
            with tenuto.run() as run:
                for number in range(8):
                    with run.agent("worker", instance=number) as agent:
                        expected.append(agent.session_id)
                        futures.append(pool.submit(tenuto.propagate(SYNC_CALLS["create"]), client))
                        futures[-1].result()
    assert [said(span)[SESSION] for span in spans.spans] == expected


def test_what_the_maker_of_a_span_says_is_left_as_it_is() -> None:
    spans = made()
    tracer = spans.provider.get_tracer("theirs")
    theirs = {"gen_ai.conversation.id": "thread 1", "gen_ai.agent.name": "Planner"}
    with instrument(spans.provider), tenuto.run() as run, run.agent("planner"):
        tracer.start_span("chat m", attributes=theirs).end()
    (span,) = spans.spans
    assert {name: (span.attributes or {})[name] for name in theirs} == theirs
    assert said(span)["tenuto.run.id"] == run.run_id


def test_a_span_of_no_model_gets_no_name_of_the_conventions_which_langfuse_exports_by() -> None:
    """Langfuse's default filter exports every span that has an attribute `gen_ai.*`.

    https://github.com/langfuse/langfuse-python/blob/main/langfuse/_client/span_filter.py
    """
    with MAKERS["langfuse"](None) as spans, instrument(spans.provider):
        with tenuto.run() as run, run.agent("planner") as agent:
            http = spans.provider.get_tracer("http").start_span("GET /weather")
            http.end()
            assert said(http) == {
                "tenuto.run.id": run.run_id,
                "tenuto.session.id": agent.session_id,
                "tenuto.session.parent.id": run.session_id,
                "tenuto.agent.path": "planner",
            }
        assert spans.spans == []


def test_a_span_of_another_session_keeps_its_own() -> None:
    # A tool's span is its caller's; that the tool asks a model as another agent changes nothing.
    model, spans = Serving(), made()
    tracer = spans.provider.get_tracer("theirs")
    with serving(model) as model.url, make(openai.OpenAI, model.url) as client:
        tenuto.wrap(client)
        with instrument(spans.provider), tenuto.run() as run, run.agent("planner") as planner:
            with tracer.start_as_current_span("tool"), run.agent("search"):
                SYNC_CALLS["create"](client)
    (span,) = spans.spans
    assert said(span)[SESSION] == planner.session_id
    assert "tenuto.turn.index" not in said(span)


def test_a_program_s_own_span_is_told_of_the_call_in_it() -> None:
    model, spans = Serving(), made()
    tracer = spans.provider.get_tracer("theirs")
    with serving(model) as model.url, make(openai.OpenAI, model.url) as client:
        tenuto.wrap(client)
        with instrument(spans.provider), tracer.start_as_current_span("before the scope"):
            with tenuto.run() as run:
                SYNC_CALLS["create"](client)
                client.chat.completions.create(model="m", messages=[*USER, *USER])
    (span,) = spans.spans
    assert said(span)[SESSION] == run.session_id
    assert said(span)["tenuto.turn.index"] == 1
    assert CONVERSATION not in said(span)


@pytest.mark.parametrize("left", ["iterated", "closed", "dropped"])
def test_a_stream_that_outlives_its_span_changes_nothing_and_logs_nothing(
    left: str, caplog: pytest.LogCaptureFixture
) -> None:
    model, spans = Serving(), made()
    tracer = spans.provider.get_tracer("theirs")
    with serving(model) as model.url, make(openai.OpenAI, model.url) as client:
        tenuto.wrap(client)
        with instrument(spans.provider), tenuto.run():
            with tracer.start_as_current_span("opens a stream"):
                stream = client.chat.completions.create(**CHAT, stream=True)
            with tracer.start_as_current_span("another"):
                if left == "iterated":
                    list(stream)
                elif left == "closed":
                    stream.close()
                else:
                    del stream
    opens, another = spans.spans
    assert CACHED_SHARE not in {**said(opens), **said(another)}
    assert "tenuto.served.rank" in said(opens)
    assert "tenuto.turn.index" not in said(another)
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


def test_an_answer_is_told_on_the_span_of_its_call_whichever_is_current_when_it_is_read() -> None:
    model, spans = Serving(), made()
    tracer = spans.provider.get_tracer("theirs")
    with serving(model) as model.url, make(openai.OpenAI, model.url) as client:
        tenuto.wrap(client)
        with instrument(spans.provider), tenuto.run():
            asks = tracer.start_span("asks")
            with trace.use_span(asks):
                stream = client.chat.completions.create(**CHAT, stream=True)
            with tracer.start_as_current_span("reads"):
                list(stream)
            asks.end()
    assert [CACHED_SHARE in said(span) for span in spans.spans] == [True, False]


def test_a_refused_connection_is_told_as_a_try_that_nobody_answered() -> None:
    spans = made()
    with make(openai.OpenAI, "http://127.0.0.1:9") as plain:
        client = tenuto.wrap(plain.with_options(max_retries=1))
        client._calculate_retry_timeout = lambda *_: 0.0
        with instrument(spans.provider), tenuto.run():
            with spans.provider.get_tracer("theirs").start_as_current_span("call"):
                with pytest.raises(openai.APIConnectionError):
                    SYNC_CALLS["create"](client)
    (span,) = spans.spans
    reasons = [
        (one.attributes or {})["tenuto.retry.reason"] for one in span.events if one.name == RETRY
    ]
    assert reasons == ["Unanswered"]
