"""A stage that does not end: it is given up in time, once, and nothing of it stays."""

from __future__ import annotations

import math
import threading

import httpx
import pytest

from tenuto_vllm.pd.fleet import Server
from tenuto_vllm.pd.waits import first_stage_s
from tests.loopback import eventually
from tests.server.pd_fakes import FakeServer, stack

SOON = {"always": "remote", "stage_least_s": 0.1, "stage_most_s": 0.2}


@pytest.fixture
def prefill():
    return FakeServer("prefill")


@pytest.fixture
def decode():
    return FakeServer("decode")


def is_idle(app):
    return all(not (one.queued_tokens or one.queued_s or one.running) for one in app.fleet.all())


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_prefill_that_hangs_is_computed_where_it_is_decoded(prefill, decode, is_stream):
    with stack([prefill], [decode], **SOON) as app:
        prefill.hangs = 1
        assert app.ask(100, stream=is_stream).status_code == 200
        assert eventually(lambda: prefill.cancelled == 1)
        assert app.metric('tenuto_pd_fallbacks_total{why="prefill_hung"}') == 1
        assert eventually(lambda: len(app.told) == 1)
        assert is_idle(app.app)
    ((body, _),) = decode.asked
    assert "kv_transfer_params" not in body
    assert app.told[0].fallback == "prefill_hung"


def test_who_hangs_hands_nothing_over_until_a_trial_has_ended(prefill, decode, caplog):
    with stack([prefill], [decode], **SOON) as app:
        prefill.hangs, prefill.warms_up = 1, False
        app.ask(100)
        app.ask(100)
        (source, _) = app.client.get("/health").json()["servers"]
        assert source["problem"].startswith("a hand-off")
        assert len(prefill.asked) == 1
        prefill.warms_up = True
        assert eventually(lambda: app.app.fleet.prefills[0].is_fit)
        app.ask(100)
        assert len(prefill.asked) == 2
    assert 'why="a hand-off took too long"' in caplog.text


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_transfer_that_hangs_is_tried_once_more_without(prefill, decode, is_stream):
    with stack([prefill], [decode], lease_s=0.2, **SOON) as app:
        decode.hangs = 1
        answer = app.ask(100, stream=is_stream, max_tokens=1)
        assert answer.status_code == 200
        assert eventually(lambda: decode.cancelled == 1)
        assert app.metric('tenuto_pd_fallbacks_total{why="transfer_hung"}') == 1
        assert eventually(lambda: len(app.told) == 1)
        assert is_idle(app.app)
    (first, _), (second, _) = decode.asked
    assert "kv_transfer_params" in first
    assert "kv_transfer_params" not in second


def test_what_hangs_again_is_tried_no_third_time(prefill, decode):
    other = FakeServer("decode")
    with stack([prefill], [decode, other], lease_s=0.2, **SOON) as app:
        decode.is_slow = other.is_slow = True
        body = {"model": "tiny", "prompt": [1] * 100, "stream": True}
        with pytest.raises(httpx.ReadTimeout):
            app.client.post("/v1/completions", json=body, timeout=2)
        assert eventually(lambda: decode.cancelled + other.cancelled == 2)
        assert is_idle(app.app)
    assert sorted(len(one.asked) for one in (decode, other)) == [0, 2]


def test_an_answer_that_has_begun_may_take_its_time(prefill, decode):
    decode.pause = threading.Event()
    body = {"model": "tiny", "prompt": [1] * 100, "stream": True}
    with stack([prefill], [decode], lease_s=0.2, **SOON) as app:
        with app.client.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("data: ")
            assert not eventually(lambda: len(decode.asked) > 1, 1)
            decode.pause.set()
            assert [line for line in lines if line][-1] == "data: [DONE]"
    assert decode.cancelled == 0


def test_an_answer_without_a_transfer_may_take_its_time(prefill, decode):
    with stack([prefill], [decode], **{**SOON, "always": "local"}) as app:
        decode.is_slow = True
        with pytest.raises(httpx.ReadTimeout):
            app.client.post("/v1/completions", json={"prompt": [1], "stream": True}, timeout=1)
    assert len(decode.asked) == 1


@pytest.mark.parametrize(
    ("expected_s", "promise_s", "wait_s"),
    [
        (1.0, None, 10.0),
        (10.0, None, 40.0),
        (20.0, None, 60.0),
        (100.0, None, 200.0),
        (10.0, 30.0, 30.0),
        (10.0, 5.0, 20.0),
        (math.inf, 5.0, 60.0),
    ],
)
def test_what_is_expected_to_take_long_is_waited_for_longer(expected_s, promise_s, wait_s):
    assert first_stage_s(expected_s, promise_s, least_s=10.0, most_s=60.0) == wait_s


def test_a_server_is_expected_to_be_as_fast_as_it_was():
    server = Server("http://a:1", "prefill")
    server.gave_up(100, 1.0)
    assert server.expected_s(100) == math.inf
    server.computed(1000, 1.0)
    server.begin(500, 0.5, 0.0)
    assert server.expected_s(500) == 1.0
    server.gave_up(500, 10.0)
    assert server.expected_s(500) == 20.0
