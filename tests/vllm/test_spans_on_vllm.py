"""One trace of client and server: a real vLLM's own spans carry session, turn, home and lease."""

from __future__ import annotations

import time

import httpx
import openai
import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from vllm.tracing import SpanAttributes

import tenuto
from examples.demo.engines import MODEL_NAME, vllm_server
from tenuto import telemetry
from tenuto_vllm import _wire, spans
from tests.otlp import collecting

PROMPT = "policy. " * 40
AROUND = "b" * 16
VLLMS = {name for key, name in vars(SpanAttributes).items() if key.startswith("GEN_AI_")}


@pytest.fixture(scope="module")
def collector():
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="module")
def url(collector):
    with vllm_server(
        ranks=2,
        middleware=("tenuto_vllm.TurnMiddleware",),
        num_blocks=1024,
        extra_args=(
            *("--scheduler-cls", "tenuto_vllm.TurnScheduler"),
            *("--otlp-traces-endpoint", collector.endpoint),
        ),
        env={
            "TRACEPARENT": f"00-{'a' * 32}-{AROUND}-01",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            "OTEL_BSP_SCHEDULE_DELAY": "20",
        },
    ) as server:
        yield server.root_url


@pytest.fixture(scope="module")
def tracer(collector):
    provider = TracerProvider()
    exporter = OTLPSpanExporter(endpoint=collector.endpoint)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with telemetry.instrument(provider, traceparent=True):
        yield provider.get_tracer("client")
    provider.shutdown()


@pytest.fixture(scope="module")
def client(url):
    with openai.OpenAI(base_url=f"{url}/v1", api_key="a-tenant", max_retries=0) as client:
        yield tenuto.wrap(client)


def chat(client, said, **how):
    messages = [{"role": "user", "content": text} for text in said]
    create = client.chat.completions.with_raw_response.create
    return create(model=MODEL_NAME, max_tokens=4, messages=messages, **how)


def completion(client, said, **how):
    create = client.completions.with_raw_response.create
    return create(model=MODEL_NAME, max_tokens=4, prompt="".join(said), **how)


def response(client, said, **how):
    how.pop("stream_options", None)
    create = client.responses.with_raw_response.create
    return create(model=MODEL_NAME, max_output_tokens=4, input="".join(said), **how)


def usage_of(raw, stream):
    if not stream:
        return raw.parse().usage
    *_, last = raw.parse()
    return last.response.usage if hasattr(last, "response") else last.usage


HOW = {True: {"stream": True, "stream_options": {"include_usage": True}}, False: {}}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("style", [chat, completion, response])
def test_the_servers_span_is_a_child_of_the_clients_and_both_say_the_same(
    collector, client, tracer, style, stream
):
    said = [f"{style.__name__} {stream} {PROMPT}"]
    with tenuto.run().agent("planner"):
        for turn, (phase, why) in enumerate([("start", "first"), ("user", "home")]):
            with tracer.start_as_current_span("chat tiny") as span:
                usage = usage_of(style(client, said, **HOW[stream]), stream)
            said.append(f"and {turn}")
            span_id = trace.format_span_id(span.get_span_context().span_id)
            [there] = collector.wait(1, parent_span_id=span_id, name="llm_request")
            [here] = collector.wait(1, span_id=span_id)
            assert there.trace_id == here.trace_id

            ours, theirs = tenuto_words(here), tenuto_words(there)
            assert ours.pop("tenuto.agent.path") == "planner"
            assert {name: theirs.get(name) for name in ours} == ours
            assert {spans.SESSION, spans.RUN, spans.PARENT_SESSION, spans.RANK} <= set(ours)
            assert (theirs[spans.TURN], theirs[spans.ATTEMPT]) == (turn, 0)
            assert (theirs[spans.PHASE], theirs[spans.WHY]) == (phase, why)
            assert theirs[spans.RANK] == theirs[spans.HOME]
            assert theirs[spans.LEASE] == "leased"
            assert 0 < theirs[spans.LEASE_WAIT_S] <= theirs[spans.LEASE_LASTS_S]
            assert there.attributes[spans.CONVERSATION] == theirs[spans.SESSION]
            details = getattr(usage, "prompt_tokens_details", None) or usage.input_tokens_details
            assert there.attributes[spans.CACHED_TOKENS] == (details.cached_tokens or 0)
            assert (theirs[spans.CACHED_SHARE] > 0) is (turn > 0)


def tenuto_words(span):
    return {name: value for name, value in span.attributes.items() if name.startswith("tenuto.")}


def ask(url, prompt, markers=None, *, flags="01", **fields):
    headers = {"traceparent": f"00-{trace_of(prompt)}-{'5' * 16}-{flags}"}
    if markers is not None:
        headers |= _wire.encode(markers)
    body = {"model": MODEL_NAME, "prompt": prompt, "max_tokens": 2, **fields}
    answer = httpx.post(
        f"{url}/v1/completions", json=body, headers=headers, timeout=20, trust_env=False
    )
    answer.raise_for_status()
    return answer


def trace_of(prompt):
    return prompt.encode().hex().ljust(32, "0")[:32]


def spans_of(collector, prompt, many=1):
    return collector.wait(many, name="llm_request", trace_id=trace_of(prompt))


def test_without_markers_a_span_is_as_vllm_makes_it(collector, url):
    ask(url, "unmarked")
    [span] = spans_of(collector, "unmarked")
    assert span.attributes["gen_ai.usage.prompt_tokens"] == len("unmarked")
    assert set(span.attributes) <= VLLMS
    assert span.parent_span_id == "5" * 16


@pytest.mark.parametrize(
    ("name", "turn", "expected"),
    [
        ("asks", _wire.Turn(next="tool", ttl=900), (900, 600, "leased")),
        ("declines", _wire.Turn(next="tool", ttl=0), (0, None, "ordinary")),
        ("ends", _wire.Turn(next="end", ttl=90), (90, None, "ordinary")),
        ("aside", _wire.Turn(kind="auxiliary", ttl=90), (90, None, "discarded")),
    ],
)
def test_a_span_says_what_became_of_the_wish_for_a_lease(collector, url, name, turn, expected):
    ask(url, name, _wire.Markers(f"session-that-{name}", turn=turn))
    [span] = spans_of(collector, name)
    names = spans.TTL_S, spans.LEASE_S, spans.LEASE
    assert tuple(map(span.attributes.get, names)) == expected


def test_each_of_several_prompts_has_a_span_of_its_own_that_says_the_same(collector, url):
    session = "session-of-several-prompts"
    ask(url, "several", _wire.Markers(session, turn=_wire.Turn(n=3)), n=2)
    both = spans_of(collector, "several", 2)
    assert [span.attributes[spans.SESSION] for span in both] == [session] * 2
    assert [span.attributes[spans.TURN] for span in both] == [3, 3]


def test_a_call_without_a_trace_has_its_span_where_vllm_puts_it(collector, client):
    # As it was started: in a trace that the environment names.
    with tenuto.run():
        session = chat(client, ["no trace"]).http_request.headers["x-session-id"]
    there = collector.wait(1, name="llm_request", parent_span_id=AROUND)
    assert [span.attributes[spans.SESSION] for span in there] == [session]


def test_a_call_that_is_not_sampled_has_no_span(collector, url):
    markers = _wire.Markers("session-that-is-sampled-at-times")
    ask(url, "not sampled", markers, flags="00")
    ask(url, "sampled", markers)
    assert spans_of(collector, "sampled")
    assert spans_of(collector, "not sampled", 0) == []


def test_no_request_waits_for_a_collector_that_hangs_or_refuses(collector, url):
    markers = _wire.Markers("session-of-a-bad-collector")
    ask(url, "before", markers)
    assert spans_of(collector, "before")
    before = collector.posts
    collector.open.clear()
    try:
        took_s: list[float] = []
        for number in range(20):
            began_s = time.monotonic()
            ask(url, f"hang {number}", markers)
            took_s.append(time.monotonic() - began_s)
        with collector.changed:
            assert collector.changed.wait_for(lambda: collector.posts > before, 10)
        # An export waits ten seconds for its answer: a request that waited for one would, too.
        assert max(took_s) < 10
        collector.status = 503
        collector.open.set()
        for number in range(20):
            ask(url, f"refused {number}", markers)
    finally:
        collector.status = 200
        collector.open.set()
