"""A deadline is written into what a prefill node offers, and kept where its caller comes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto_vllm.engine import transfers
from tenuto_vllm.engine.transfers import DEADLINE, drop_expired, lease_s, stamp

OFFER = {"do_remote_prefill": True, "do_remote_decode": False, "remote_engine_id": "e"}
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


class Engine:
    """As much of vLLM's client as is joined: what requests are made with, and what comes back."""

    def __init__(self, extra: dict[str, Any] | None) -> None:
        connector = None if extra is None else SimpleNamespace(kv_connector_extra_config=extra)
        self.vllm_config = SimpleNamespace(kv_transfer_config=connector)
        self.input_processor = self.output_processor = self
        self.made: list[Any] = []

    def process_inputs(self, request_id: str, prompt: str, params: Any) -> None:
        self.made.append(dict(params.extra_args))

    def process_outputs(self, engine_core_outputs: list[Any]) -> list[Any]:
        return engine_core_outputs


def offered(engine: Engine, params: object) -> Any:
    [output] = engine.process_outputs([SimpleNamespace(kv_transfer_params=params)])
    return output.kv_transfer_params


def given_to(engine: Engine, params: object) -> dict[str, Any]:
    extra_args = {"kv_transfer_params": params, "theirs": 1}
    engine.process_inputs("r", "p", SimpleNamespace(extra_args=extra_args))
    return engine.made[-1]


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Any:
    now = SimpleNamespace(s=1000.0)
    monkeypatch.setattr(transfers.time, "time", lambda: now.s)
    return now


def test_an_offer_is_good_for_two_thirds_of_the_lease_and_dropped_after_it(at: Any) -> None:
    engine = Engine({"kv_lease_duration": 60})
    assert transfers.install(engine)
    offer = offered(engine, dict(OFFER))
    assert offer == {**OFFER, DEADLINE: 1040.0}
    at.s = 1039.9
    assert given_to(engine, dict(offer))["kv_transfer_params"] == offer
    at.s = 1040.0
    assert given_to(engine, dict(offer)) == {"theirs": 1}


def test_it_is_joined_once(at: Any) -> None:
    engine = Engine({})
    transfers.install(engine)
    joined = engine.process_inputs, engine.process_outputs
    transfers.install(engine)
    assert (engine.process_inputs, engine.process_outputs) == joined


def test_an_engine_without_a_connector_has_its_outputs_untouched() -> None:
    engine = Engine(None)
    assert transfers.install(engine)
    assert engine.process_outputs.__func__ is Engine.process_outputs


def test_what_offers_nothing_and_what_has_a_deadline_stays_as_it_is(at: Any) -> None:
    engine = Engine({})
    transfers.install(engine)
    fetched_from_a_decode_node = {"do_remote_decode": True, "do_remote_prefill": False}
    for params in (None, {}, fetched_from_a_decode_node, {**OFFER, DEADLINE: 5.0}):
        assert offered(engine, params) == params
        assert offered(engine, params and dict(params)) == params


@pytest.mark.parametrize(
    ("extra", "lease"),
    [
        ({}, 30.0),
        ({"kv_lease_duration": 90}, 90.0),
        ({"connectors": [{"kv_connector": "ExampleConnector"}]}, 30.0),
        (
            {
                "connectors": [
                    {"kv_connector_extra_config": {"kv_lease_duration": 120}},
                    {"kv_connector_extra_config": {"kv_lease_duration": 45}},
                ]
            },
            45.0,
        ),
    ],
)
def test_the_lease_is_the_shortest_that_is_set_or_vllms_own(
    extra: dict[str, Any], lease: float
) -> None:
    assert lease_s(extra) == lease


@pytest.mark.parametrize("params", ["x", 1, ["e"]])
def test_parameters_that_are_no_object_never_reach_the_engine(at: Any, params: object) -> None:
    engine = Engine({})
    transfers.install(engine)
    assert given_to(engine, params) == {"theirs": 1}


def test_an_output_that_cannot_be_read_goes_on(at: Any) -> None:
    engine = Engine({})
    transfers.install(engine)
    odd = [object()]
    assert engine.process_outputs(odd) == odd


@given(ANY, st.floats(0, 2e9))
def test_any_parameters_are_taken_without_an_error(params: Any, now_s: float) -> None:
    stamp(params, now_s)
    drop_expired({"kv_transfer_params": params}, now_s)
    drop_expired(params, now_s)


@given(st.floats(0, 2e9), st.floats(0, 2e9))
def test_a_transfer_is_dropped_exactly_from_its_deadline_on(deadline: float, now_s: float) -> None:
    extra_args = {"kv_transfer_params": {DEADLINE: deadline}}
    assert drop_expired(extra_args, now_s) is (now_s >= deadline)
    assert ("kv_transfer_params" in extra_args) is (now_s < deadline)


@pytest.mark.parametrize("deadline", [None, "soon", True, [], float("nan")])
def test_a_deadline_that_is_no_time_drops_the_transfer(deadline: object) -> None:
    extra_args = {"kv_transfer_params": {DEADLINE: deadline}}
    assert drop_expired(extra_args, 0.0)
    assert extra_args == {}
