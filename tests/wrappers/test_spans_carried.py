"""The trace and its baggage go to the model's host where that is asked for, and nowhere else."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from opentelemetry import baggage, context
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.trace import format_span_id, format_trace_id

import tenuto
from tenuto.telemetry import instrument
from tests.calls import CHAT, SYNC_CALLS, make
from tests.loopback import openai_http, serving
from tests.wrappers.spans import MAKERS, Serving, made

NAMES = ("traceparent", "tracestate", "baggage")


def carried(headers: dict[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in NAMES if name in headers}


def test_nothing_is_sent_that_is_not_asked_for() -> None:
    model, spans = Serving(), made()
    with serving(model) as model.url, make(openai.OpenAI, model.url) as client:
        with instrument(spans.provider, own_spans=True), tenuto.run():
            SYNC_CALLS["create"](tenuto.wrap(client))
    assert [carried(one.headers) for one in model.arrived] == [{}]


@pytest.mark.parametrize("maker", MAKERS)
def test_each_try_carries_the_span_of_its_call(maker: str) -> None:
    model = Serving(failures=[500])
    with serving(model) as model.url, make(openai.OpenAI, model.url) as client:
        tenuto.wrap(client)
        with MAKERS[maker](client) as spans, instrument(spans.provider, traceparent=True):
            with spans.provider.get_tracer("theirs").start_as_current_span("around") as around:
                with tenuto.run():
                    SYNC_CALLS["create"](client)
            (call,) = [span for span in spans.spans if span.name != "around"]
    # The server's span belongs below the call's, also where that was not made current.
    trace_id, span_id = call.context.trace_id, call.context.span_id
    expected = f"00-{format_trace_id(trace_id)}-{format_span_id(span_id)}-"
    assert around.get_span_context().trace_id == trace_id
    assert [carried(one.headers).keys() for one in model.arrived] == [{"traceparent"}] * 2
    assert all(one.headers["traceparent"].startswith(expected) for one in model.arrived)


def test_baggage_is_the_program_s_with_the_session_s_ids() -> None:
    model, spans = Serving(), made()
    with serving(model) as model.url, make(openai.OpenAI, model.url) as client:
        token = context.attach(baggage.set_baggage("tenant", "a b"))
        with instrument(spans.provider, baggage=True), tenuto.run() as run:
            with run.agent("planner") as planner:
                SYNC_CALLS["create"](tenuto.wrap(client))
        # What is in scope for other hosts is left as it is.
        assert baggage.get_all() == {"tenant": "a b"}
        context.detach(token)
    (one,) = model.arrived
    read = baggage.get_all(W3CBaggagePropagator().extract(one.headers))
    assert read == {
        "tenant": "a b",
        "tenuto.run.id": run.run_id,
        "tenuto.session.id": planner.session_id,
        "tenuto.session.parent.id": run.session_id,
        "tenuto.agent.path": "planner",
        "gen_ai.conversation.id": planner.session_id,
        "gen_ai.agent.name": "planner",
    }


def test_a_header_of_the_caller_s_stays_as_it_is() -> None:
    model, spans = Serving(), made()
    theirs = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01", "baggage": "theirs=1"}
    with serving(model) as model.url, make(openai.OpenAI, model.url) as client:
        with instrument(spans.provider, own_spans=True, traceparent=True, baggage=True):
            with tenuto.run():
                tenuto.wrap(client).chat.completions.create(**CHAT, extra_headers=theirs)
    assert [carried(one.headers) for one in model.arrived] == [theirs]


def test_a_call_outside_every_run_carries_nothing() -> None:
    model, spans = Serving(), made()
    with serving(model) as model.url, make(openai.OpenAI, model.url) as client:
        with instrument(spans.provider, traceparent=True, baggage=True):
            with spans.provider.get_tracer("theirs").start_as_current_span("call"):
                SYNC_CALLS["create"](tenuto.wrap(client))
    assert [carried(one.headers) for one in model.arrived] == [{}]


class Elsewhere(Serving):
    """Sends every call on to another origin."""

    to = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def sending(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                location = f"{self.to}{scope['path']}".encode()
                message = {**message, "status": 307, "headers": [(b"location", location)]}
            await send(message)

        await super().__call__(scope, receive, sending)


def test_a_redirect_to_another_origin_leaves_them_behind() -> None:
    model, first, spans = Serving(), Elsewhere(), made()
    with serving(model) as model.url, serving(first) as first.url:
        first.to = model.url
        http = openai_http.Client(verify=False, follow_redirects=True)
        with openai.OpenAI(base_url=f"{first.url}/v1", api_key="k", http_client=http) as client:
            with instrument(spans.provider, own_spans=True, traceparent=True, baggage=True):
                with tenuto.run():
                    SYNC_CALLS["create"](tenuto.wrap(client))
    assert set(carried(first.arrived[0].headers)) == {"traceparent", "baggage"}
    assert carried(model.arrived[0].headers) == {}


@pytest.mark.parametrize("host", ["api.openai.com", "openrouter.ai", "x.openai.azure.com"])
def test_a_public_api_is_sent_neither(host: str) -> None:
    seen: list[dict[str, str]] = []

    def answer(request: Any) -> Any:
        seen.append(dict(request.headers))
        return openai_http.Response(200, json={"id": "c", "choices": [], "object": "x"})

    spans = made()
    http = openai_http.Client(transport=openai_http.MockTransport(answer))
    client = openai.OpenAI(base_url=f"https://{host}/v1", api_key="k", http_client=http)
    with instrument(spans.provider, own_spans=True, traceparent=True, baggage=True):
        with tenuto.run():
            SYNC_CALLS["create"](tenuto.wrap(client))
    assert [carried(headers) for headers in seen] == [{}]
