"""Tracing with OpenTelemetry's API alone, where there are no spans: nothing is done or sent."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from typing import Any

import pytest

import tenuto
from tenuto import observer
from tenuto.errors import ConfigError
from tenuto.telemetry import SessionSpanProcessor, instrument, names
from tests.asking import aask, aclient, ask, client
from tests.loopback import Recorder, serving


def test_import_tenuto_loads_nothing_of_opentelemetry() -> None:
    code = "import sys, tenuto; print([one for one in sys.modules if 'opentelemetry' in one])"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert answer.stdout.strip() == "[]"


def test_requests_go_out_as_always_with_nothing_but_the_api(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = Recorder(script=[500], answer_headers={"retry-after-ms": "1"})
    with serving(recorder) as url, client(url) as llm:
        with instrument(own_spans=True, baggage=False, traceparent=True):
            with tenuto.run() as run, run.agent("planner") as planner:
                ask(llm, "hi")
    assert [one.headers["x-session-id"] for one in recorder.arrived] == [planner.session_id] * 2
    assert not any("traceparent" in one.headers for one in recorder.arrived)
    assert tenuto.diagnose().passed_over == {}
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []
    assert observer.observers == ()


@pytest.mark.anyio
async def test_concurrent_runs_stay_apart_with_nothing_but_the_api() -> None:
    async def work(number: int) -> tuple[str, str]:
        async with tenuto.run() as run:
            await aask(llm, str(number))
            return str(number), run.session_id

    recorder = Recorder()
    with serving(recorder) as url:
        llm = aclient(url)
        with instrument(own_spans=True):
            expected = await asyncio.gather(*(work(number) for number in range(50)))
        await llm.close()
    arrived = {
        one.body["messages"][0]["content"]: one.headers["x-session-id"] for one in recorder.arrived
    }
    assert arrived == dict(expected)


@pytest.mark.parametrize("given", [{"provider": object()}, {"workflow": "triage"}])
def test_a_mistake_is_told_at_once(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        instrument(**given)
    assert observer.observers == ()


class Span:
    """As much of the SDK's span as a processor sees."""

    def __init__(self, name: str, **attributes: str) -> None:
        self.name = name
        self.attributes: dict[str, Any] = attributes

    def set_attributes(self, said: dict[str, Any]) -> None:
        self.attributes |= said


def test_a_processor_needs_nothing_of_the_sdk_and_looks_at_scopes_alone() -> None:
    processor, outside, inside = SessionSpanProcessor(), Span("chat m"), Span("chat m")
    processor.on_start(outside)
    with tenuto.run() as run:
        processor.on_start(inside)
    processor.on_end(inside)
    assert processor.force_flush()
    processor.shutdown()
    assert outside.attributes == {}
    assert inside.attributes == {
        names.RUN: run.run_id,
        names.SESSION: run.session_id,
        names.CONVERSATION: run.session_id,
    }


def test_a_span_that_cannot_be_annotated_is_passed_over() -> None:
    class Broken(Span):
        def set_attributes(self, said: dict[str, Any]) -> None:
            raise RuntimeError

    with tenuto.run():
        SessionSpanProcessor().on_start(Broken("chat m"))
    assert tenuto.diagnose().passed_over == {"trace": 1}


def test_a_user_s_own_name_of_a_run_is_on_no_span() -> None:
    span = Span("chat m")
    with tenuto.run("ticket-4711") as run, run.agent("planner"):
        SessionSpanProcessor().on_start(span)
    assert "4711" not in str(span.attributes)


@pytest.mark.parametrize(
    ("name", "attributes", "expected"),
    [
        ("chat m", {}, True),
        ("invoke_agent planner", {}, True),
        ("anything", {"gen_ai.request.model": "m"}, True),
        ("GET /weather", {"http.request.method": "GET"}, False),
        ("chatting", {}, False),
    ],
)
def test_a_span_of_the_conventions_is_told_by_its_name_or_its_attributes(
    name: str, attributes: dict[str, object], expected: bool
) -> None:
    assert names.is_gen_ai(name, attributes) is expected
