"""Tracing that fails, waits, is swapped, sampled out or taken down costs no request anything."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import logfire
import openai
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased
from opentelemetry.trace import TraceFlags

import tenuto
from tenuto import observer
from tenuto.errors import ConfigError
from tenuto.telemetry import SessionSpanProcessor, instrument, names
from tests.calls import SYNC_CALLS, make
from tests.frameworks.scripted import Call, calls_tools
from tests.loopback import serving
from tests.wrappers.spans import MAKERS, Made, Serving, made
from tests.wrappers.test_spans_own import tool_turns


class Failing(SpanExporter):
    def __init__(self) -> None:
        self.asked = 0

    def export(self, spans: Any) -> SpanExportResult:
        self.asked += 1
        raise RuntimeError("the collector is gone")

    def shutdown(self) -> None:
        pass


class Blocking(SpanExporter):
    """Waits for the end of what is tested, which must not wait for it."""

    def __init__(self) -> None:
        self.asked, self.over = threading.Event(), threading.Event()
        self.was_waited_for = False

    def export(self, spans: Any) -> SpanExportResult:
        self.asked.set()
        if not self.over.wait(5):
            self.was_waited_for = True
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.over.set()


class Global:
    """The process's own provider, which the API lets nobody set twice."""

    def swap(self, provider: Any) -> None:
        trace._TRACER_PROVIDER = provider


@pytest.fixture
def provider_of_process(monkeypatch: pytest.MonkeyPatch) -> Global:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    return Global()


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert observer.observers == ()


def sessions(spans: Made) -> list[Any]:
    return [(span.attributes or {}).get("tenuto.session.id") for span in spans.spans]


def traced_call(client: Any, provider: Any) -> None:
    with provider.get_tracer("theirs").start_as_current_span("chat m"):
        SYNC_CALLS["create"](client)


@pytest.mark.parametrize("processor", [SimpleSpanProcessor, BatchSpanProcessor])
def test_an_exporter_that_fails_fails_no_request(processor: Any) -> None:
    provider, exporter, model = TracerProvider(), Failing(), Serving(calls_tools(Call("weather")))
    provider.add_span_processor(processor(exporter))
    with serving(model) as model.url, make(openai.OpenAI, model.url) as client:
        with instrument(provider, own_spans=True), tenuto.run() as run, run.agent("planner"):
            tool_turns(tenuto.wrap(client))
    provider.force_flush()
    assert exporter.asked
    provider.shutdown()
    assert len(model.arrived) == 2


def test_no_request_waits_for_an_exporter_that_blocks() -> None:
    # With the processor that exports where a span ends: the wait for a tool ends with a request.
    provider, exporter, model = TracerProvider(), Blocking(), Serving(calls_tools(Call("weather")))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with serving(model) as model.url, make(openai.OpenAI, model.url) as client:
        with tenuto.run(), instrument(provider, own_spans=True):
            tool_turns(tenuto.wrap(client))
            assert len(model.arrived) == 2
            assert exporter.asked.wait(5)
            # One that follows goes on too, with the first span still on its way.
            SYNC_CALLS["create"](client)
            exporter.over.set()
    assert len(model.arrived) == 3
    assert not exporter.was_waited_for


@pytest.mark.anyio
async def test_scopes_and_calls_go_on_while_a_batch_is_not_taken() -> None:
    provider, exporter, model = TracerProvider(), Blocking(), Serving()
    provider.add_span_processor(
        BatchSpanProcessor(exporter, schedule_delay_millis=1, max_export_batch_size=1)
    )

    async def work(number: int) -> None:
        async with tenuto.run() as run, run.agent("worker", instance=number):
            await client.chat.completions.create(model="m", messages=[])

    with serving(model) as model.url, instrument(provider, own_spans=True):
        client = tenuto.wrap(make(openai.AsyncOpenAI, model.url))
        await asyncio.gather(*(work(number) for number in range(20)))
        await client.close()
        assert exporter.asked.wait(5)
        exporter.over.set()
    provider.shutdown()
    assert len(model.arrived) == 20
    assert not exporter.was_waited_for


def test_a_processor_of_the_program_s_that_raises_fails_no_scope() -> None:
    class Raising(SessionSpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise RuntimeError

    provider = TracerProvider()
    provider.add_span_processor(Raising())
    with instrument(provider, own_spans=True), tenuto.run() as run, run.agent("planner"):
        assert tenuto.current() is not None
    assert tenuto.diagnose().passed_over == {"trace": 2}


def test_the_global_provider_is_followed_wherever_it_goes(provider_of_process: Global) -> None:
    first, second, model = made(), made(), Serving()
    with serving(model) as model.url, make(openai.OpenAI, model.url) as client:
        tenuto.wrap(client)
        # Before there is any: the API's own stands for it.
        with instrument(own_spans=True):
            with tenuto.run() as run:
                traced_call(client, trace.get_tracer_provider())
                provider_of_process.swap(first.provider)
                with run.agent("planner") as planner:
                    traced_call(client, first.provider)
                    provider_of_process.swap(second.provider)
                    traced_call(client, second.provider)
                    with run.agent("search") as search:
                        traced_call(client, second.provider)
            provider_of_process.swap(first.provider)
            with tenuto.run() as again:
                traced_call(client, first.provider)
    assert sessions(first) == [planner.session_id] * 2 + [again.session_id] * 2
    assert sessions(second) == [planner.session_id] + [search.session_id] * 2
    assert len(model.arrived) == 5


LOGFIRE_TWICE = """
import logfire, tenuto
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tenuto.telemetry import instrument, unscrubbed

instrument()
for _ in range(2):
    exporter = InMemorySpanExporter()
    logfire.configure(
        send_to_logfire=False,
        console=False,
        scrubbing=logfire.ScrubbingOptions(callback=unscrubbed),
        additional_span_processors=[SimpleSpanProcessor(exporter)],
    )
    with tenuto.run() as run, logfire.span("work"):
        pass
    found = {span.attributes["tenuto.session.id"] for span in exporter.get_finished_spans()}
    assert found == {run.session_id}, found
"""


def test_logfire_configured_anew_is_followed() -> None:
    # Its global provider stays, and stands for another one. It sets more than that for a
    # process, so it is one of its own.
    done = subprocess.run([sys.executable, "-c", LOGFIRE_TWICE], check=False, timeout=60)
    assert done.returncode == 0


def test_logfire_scrubs_ids_that_it_is_not_told_to_keep() -> None:
    # Why `unscrubbed` is there: this one fails when it is needed no more.
    exporter = InMemorySpanExporter()
    local = logfire.configure(
        local=True,
        send_to_logfire=False,
        console=False,
        inspect_arguments=False,
        additional_span_processors=[SimpleSpanProcessor(exporter), SessionSpanProcessor()],
    )
    with tenuto.run(), local.span("work"):
        pass
    (span, *_) = exporter.get_finished_spans()
    assert "Scrubbed" in str((span.attributes or {})["tenuto.session.id"])


# Langfuse's provider is one for the process, and its tracers keep their sampler.
@pytest.mark.parametrize("maker", sorted(MAKERS.keys() - {"langfuse"}))
@pytest.mark.parametrize("sampler", [ALWAYS_OFF, ParentBased(TraceIdRatioBased(0))])
def test_with_sampling_off_calls_go_out_as_always(maker: str, sampler: Any) -> None:
    model = Serving(calls_tools(Call("weather")), failures=[500])
    with serving(model) as model.url, make(openai.OpenAI, model.url) as client:
        tenuto.wrap(client)
        with MAKERS[maker](client) as spans:
            inner = getattr(spans.provider, "provider", spans.provider)
            kept, inner.sampler = inner.sampler, sampler
            try:
                with instrument(spans.provider, own_spans=True, traceparent=True):
                    with tenuto.run() as run, run.agent("planner") as planner:
                        tool_turns(client)
            finally:
                inner.sampler = kept
            assert spans.spans == []
    assert [one.headers["x-session-id"] for one in model.arrived] == [planner.session_id] * 3
    # The decision not to sample is the trace's, and travels with it.
    flags = [one.headers["traceparent"].rpartition("-")[2] for one in model.arrived]
    assert {int(flag, 16) & TraceFlags.SAMPLED for flag in flags} == {0}


def test_setting_up_twice_is_setting_up_once_and_either_takes_it_down() -> None:
    spans, model = made(), Serving(failures=[500])
    with serving(model) as model.url, make(openai.OpenAI, model.url) as client:
        tenuto.wrap(client)
        first = instrument(spans.provider, own_spans=True)
        second = instrument(spans.provider, own_spans=True)
        with tenuto.run():
            SYNC_CALLS["create"](client)
        assert [len(span.events) for span in spans.spans] == [1]
        first.close()
        with tenuto.run():
            traced_call(client, spans.provider)
        second.close()
        with instrument(spans.provider), tenuto.run() as run:
            traced_call(client, spans.provider)
    assert sessions(spans)[1:] == [None, run.session_id]


def test_two_providers_are_both_annotated_and_a_retry_is_told_once() -> None:
    one, other, model = made(), made(), Serving(failures=[500])
    with serving(model) as model.url, make(openai.OpenAI, model.url) as client:
        tenuto.wrap(client)
        with instrument(one.provider), instrument(other.provider), tenuto.run() as run:
            with one.provider.get_tracer("theirs").start_as_current_span("outer"):
                traced_call(client, other.provider)
    assert sessions(one) == sessions(other) == [run.session_id]
    assert [len(span.events) for span in (*one.spans, *other.spans)] == [0, 1]


def test_a_scope_that_is_open_when_tracing_is_taken_down_is_left_without_a_trace() -> None:
    spans = made()
    tracing = instrument(spans.provider, own_spans=True)
    with tenuto.run():
        tracing.close()
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_a_wait_that_is_over_has_its_span_before_tracing_is_taken_down() -> None:
    # A program may shut its provider down next.
    spans, model = made(), Serving(calls_tools(Call("weather")))
    with serving(model) as model.url, make(openai.OpenAI, model.url) as client:
        with tenuto.run(), instrument(spans.provider, own_spans=True):
            tool_turns(tenuto.wrap(client))
    assert [span.name for span in spans.exporter.get_finished_spans()] == ["execute_tool weather"]


@pytest.mark.parametrize("given", [{"provider": "otlp"}, {"workflow": "triage"}])
def test_a_mistake_is_told_where_tracing_is_set_up(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        instrument(**given)


def test_no_provider_is_kept_that_is_not_the_process_s_any_more(
    caplog: pytest.LogCaptureFixture, provider_of_process: Global
) -> None:
    providers: list[Any] = []
    with instrument(own_spans=True):
        for _ in range(3):
            spans = made()
            providers.append(weakref.ref(spans.provider))
            provider_of_process.swap(spans.provider)
            with tenuto.run():
                pass
            # The SDK keeps it until then.
            spans.provider.shutdown()
        del spans
        gc.collect()
        assert [provider() is None for provider in providers] == [True, True, False]
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


def test_closing_a_set_up_again_leaves_the_next_one_as_it_is() -> None:
    provider = TracerProvider()
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    first = instrument(provider)
    first.close()
    with instrument(provider):
        first.close()
        with tenuto.run() as run, provider.get_tracer("theirs").start_as_current_span("work"):
            pass
    with tenuto.run(), provider.get_tracer("theirs").start_as_current_span("after"):
        pass
    said = [(span.attributes or {}).get(names.RUN) for span in exporter.get_finished_spans()]
    assert said == [run.run_id, None]
