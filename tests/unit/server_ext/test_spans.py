"""What is known of a turn, as its span is to say it."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto_vllm import TurnMiddleware, _wire, spans
from tenuto_vllm.asgi.ranks import Ranks
from tenuto_vllm.config import Settings
from tenuto_vllm.embedded import Engine, EngineSettings
from tenuto_vllm.engine.seam import SCOPE_KEY, RankBox
from tenuto_vllm.engine.spans import add_decision, install
from tenuto_vllm.metrics import Counters

SESSION = "session-of-spans"


def test_all_that_was_said_and_answered_is_told_in_the_words_of_the_protocol() -> None:
    turn = _wire.Turn(n=3, attempt=1, phase="tool", next="user", ttl=900, kind="subagent")
    markers = _wire.Markers(SESSION, parent="its-parent", run="their-run", turn=turn)
    assert spans.attributes(markers, _wire.Served(1, 0, "home", 600)) == {
        "gen_ai.conversation.id": SESSION,
        "tenuto.session.id": SESSION,
        "tenuto.session.parent.id": "its-parent",
        "tenuto.run.id": "their-run",
        "tenuto.turn.index": 3,
        "tenuto.turn.attempt": 1,
        "tenuto.turn.phase": "tool",
        "tenuto.turn.next": "user",
        "tenuto.turn.class": "subagent",
        "tenuto.turn.ttl_s": 900,
        "tenuto.served.rank": 1,
        "tenuto.served.home": 0,
        "tenuto.served.why": "home",
        "tenuto.served.lease_s": 600,
    }


def test_what_is_not_known_is_left_out() -> None:
    told = spans.attributes(_wire.Markers(SESSION), _wire.Served())
    assert told == {"gen_ai.conversation.id": SESSION, "tenuto.session.id": SESSION}


@pytest.mark.parametrize(
    ("tokens", "prompt", "share"), [(0, 10, 0.0), (4, 10, 0.4), (0, 0, 0.0), (11, 10, 1.0)]
)
def test_what_was_cached_is_told_in_tokens_and_as_a_share(
    tokens: int, prompt: int, share: float
) -> None:
    told = spans.cached(tokens, prompt)
    assert told == {spans.CACHED_TOKENS: tokens, spans.CACHED_SHARE: share}


def test_a_decision_arrives_as_it_was_sent_without_what_is_not_of_it() -> None:
    decided = {"decision": "leased", "wait_s": 2.5, "lasts_s": 40.0, "told_s": None, "counts": {}}
    told = spans.unpack(spans.pack(decided))
    assert told == {spans.LEASE: "leased", spans.LEASE_WAIT_S: 2.5, spans.LEASE_LASTS_S: 40.0}
    assert spans.unpack(spans.pack({"decision": "none"})) == {spans.LEASE: "none"}


@given(st.one_of(st.text(), st.none(), st.binary(), st.integers()))
def test_anything_else_is_no_decision(text: object) -> None:
    assert spans.unpack(text) == {}


@pytest.mark.parametrize("text", ["[]", "7", "null", '{"x": 1}', '{"tenuto.lease.wait_s": {}}'])
def test_json_of_another_shape_is_no_decision(text: str) -> None:
    assert spans.unpack(text) == {}


class App:
    """Answers at once, with two ranks behind it; the rank that serves is written in the box."""

    def __init__(self, **served: Any) -> None:
        self.state = SimpleNamespace(tenuto_view=Engine(EngineSettings(ranks=2)))
        self.box = RankBox()
        self._served = served

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.box = scope[SCOPE_KEY]
        for name, value in self._served.items():
            setattr(self.box, name, value)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


def known(app: App, headers: dict[str, str]) -> tuple[Any, dict[str, str]]:
    """Ask, and return what the call's spans are to say, and the answer's headers."""
    answered: dict[str, str] = {}

    async def receive() -> Any:
        return {"type": "http.request", "body": b"{}"}

    async def send(message: Any) -> None:
        pairs = message.get("headers", ())
        answered.update((name.decode(), value.decode()) for name, value in pairs)

    async def ask() -> None:
        given = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": given}
        await TurnMiddleware(app, settings=Settings())({**scope, "app": app}, receive, send)

    anyio.run(ask)
    return app.box.known and app.box.known(), answered


def test_a_span_says_the_rank_that_served_and_what_the_answer_said_of_it() -> None:
    headers = _wire.encode(_wire.Markers(SESSION, turn=_wire.Turn(n=0)))
    told, answered = known(App(served=0), headers)
    said = _wire.decode_served(answered[_wire.SERVED.lower()])
    assert (said.rank, said.home, said.why) == (0, 1, "first")
    assert (told[spans.RANK], told[spans.HOME], told[spans.WHY]) == (0, 1, "first")


def test_a_call_whose_requests_went_to_several_ranks_names_none_of_them() -> None:
    headers = _wire.encode(_wire.Markers(SESSION, turn=_wire.Turn(n=0)))
    told, _ = known(App(served=0, spread=True), headers)
    assert (told.get(spans.RANK), told[spans.HOME]) == (None, 1)


def test_an_auxiliary_call_has_no_home_on_its_span() -> None:
    headers = _wire.encode(_wire.Markers(SESSION, turn=_wire.Turn(kind="auxiliary", ttl=9)))
    told, _ = known(App(), headers)
    assert (told[spans.WHY], told[spans.CLASS]) == ("auxiliary", "auxiliary")
    assert not {spans.HOME, spans.LEASE_S} & set(told)


def test_a_call_of_no_session_has_nothing_to_say() -> None:
    assert known(App(), {})[0] is None


def test_where_no_engine_can_be_asked_a_span_still_says_whose_turn_it_is() -> None:
    app = App()
    app.state = SimpleNamespace()
    told, _ = known(app, _wire.encode(_wire.Markers(SESSION, turn=_wire.Turn(n=2))))
    assert told == {spans.CONVERSATION: SESSION, spans.SESSION: SESSION, spans.TURN: 2}


@pytest.fixture
def events(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level("INFO", logger="tenuto_vllm")
    return lambda: [vars(record).get("event") for record in caplog.records]


class Processor:
    """vLLM's output processor as far as spans go."""

    def __init__(self, *, tracing_enabled: bool = True) -> None:
        self.tracing_enabled = tracing_enabled
        self.request_states: dict[str, Any] = {}

    def add_request(
        self, request: Any, prompt: Any, parent_req: Any, request_index: Any, queue: Any
    ) -> None: ...

    def do_tracing(self, engine_core_output: Any, req_state: Any, iteration_stats: Any) -> None: ...


class Renamed(Processor):
    def do_tracing(self, output: Any, state: Any) -> None: ...


class Stateless(Processor):
    def __init__(self) -> None:
        self.tracing_enabled = True


def client_of(processor: object) -> Any:
    return SimpleNamespace(output_processor=processor)


def test_without_tracing_nothing_is_touched_or_told(events: Any) -> None:
    processor = Processor(tracing_enabled=False)
    for one in (client_of(processor), SimpleNamespace(), None):
        assert not install(one)
    assert vars(processor) == {"tracing_enabled": False, "request_states": {}}
    assert events() == []


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Renamed, "Renamed.do_tracing takes output, state"),
        (Stateless, "requests have no state"),
    ],
)
def test_a_vllm_that_makes_its_spans_otherwise_is_left_alone_with_a_sentence(
    kind: Any, why: str, events: Any, caplog: pytest.LogCaptureFixture
) -> None:
    processor = kind()
    before = dict(vars(processor))
    assert not install(client_of(processor))
    assert vars(processor) == before
    assert events() == ["spans_off"]
    assert why in caplog.text


@pytest.mark.parametrize("is_installed", [True, False])
def test_without_a_tracer_provider_it_is_left_alone_with_a_sentence(
    is_installed: bool, events: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With OpenTelemetry's API alone there is a provider that takes no processor.
    if not is_installed:
        monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    processor = Processor()
    assert not install(client_of(processor))
    assert "do_tracing" not in vars(processor)
    assert events() == ["spans_off"]


@pytest.mark.parametrize("shadow", [True, False])
def test_a_dry_run_looks_at_no_span(shadow: bool, events: Any) -> None:
    state = SimpleNamespace(engine_client=client_of(Renamed()))
    Ranks(Settings(shadow=shadow), Counters()).view({"app": SimpleNamespace(state=state)})
    assert events() == ([] if shadow else ["spans_off"])


def test_a_decision_that_cannot_be_sent_along_costs_nothing() -> None:
    add_decision(object(), {"decision": "leased"})
    request = SimpleNamespace(trace_headers=None)
    add_decision(request, {"decision": "leased", "wait_s": object()})
    assert request.trace_headers is None


def test_a_decision_goes_beside_what_the_client_sent_and_changes_none_of_it() -> None:
    theirs = {"traceparent": "00-1-2-01"}
    request = SimpleNamespace(trace_headers=theirs)
    add_decision(request, {"decision": "leased"})
    assert request.trace_headers == {**theirs, spans.CARRIER: '{"tenuto.lease.decision": "leased"}'}
    assert theirs == {"traceparent": "00-1-2-01"}
