"""What a client writes into a body names no addresses, and breaks nothing."""

from __future__ import annotations

import codecs
import json

import pytest

from tests.server.pd_fakes import TRANSFER, FakeServer, stack

PARAMS = {**TRANSFER, "remote_host": "192.0.2.66"}
TEXT = json.dumps({"model": "tiny", "prompt": "x", "kv_transfer_params": PARAMS})
DEEP = "[" * 200_000 + "]" * 200_000


@pytest.fixture
def prefill():
    return FakeServer("prefill")


@pytest.fixture
def decode():
    return FakeServer("decode")


@pytest.mark.parametrize("always", ["local", "remote"])
@pytest.mark.parametrize(
    "more",
    [
        {"kv_transfer_params": PARAMS},
        {"vllm_xargs": {"kv_transfer_params": PARAMS, "session_id": "s"}},
        {"sampling_params": {"seed": 1, "extra_args": {"kv_transfer_params": PARAMS, "a": 1}}},
    ],
)
def test_a_client_names_no_addresses_that_are_asked_for_blocks(prefill, decode, always, more):
    with stack([prefill], [decode], always=always) as app:
        assert app.ask(100, **more).status_code == 200
    sent = [body for server in (prefill, decode) for body, _ in server.asked]
    assert len(sent) == 1 + (always == "remote")
    for body in sent:
        assert "192.0.2.66" not in json.dumps(body)
        assert body.get("vllm_xargs", {"session_id": "s"}) == {"session_id": "s"}
        assert body.get("sampling_params", {"seed": 1})["seed"] == 1


@pytest.mark.parametrize(
    "body",
    [
        codecs.BOM_UTF8 + TEXT.encode(),
        TEXT.encode("utf-16"),
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-32-be"),
        TEXT.replace("x", "\ud800").encode("utf-8", "surrogatepass"),
        TEXT.replace('"x"', "1" * 5000).encode(),
        TEXT.replace('"x"', DEEP).encode(),
    ],
    ids=["mark", "utf-16", "utf-16-le", "utf-32-be", "surrogate", "digits", "deep"],
)
def test_what_is_not_read_here_is_not_read_by_a_server(prefill, decode, body):
    with stack([prefill], [decode]) as app:
        for path in ("/v1/completions", "/invocations"):
            answer = app.client.post(path, content=body)
            assert answer.status_code == 400
            assert "UTF-8" in answer.json()["error"]["message"]
    assert not decode.asked


def test_a_model_call_behind_another_path_is_not_taken_for_something_else(prefill, decode):
    with stack([prefill], [decode]) as app:
        for path in ("/below/v1/completions", "/v1/v1/messages"):
            assert app.client.post(path, content=TEXT).status_code == 404
    assert not decode.asked


def test_an_answer_of_any_length_may_be_asked_for(prefill, decode):
    body = b'{"model":"tiny","prompt":[1,2],"max_tokens":1' + b"0" * 400 + b"}"
    with stack([prefill], [decode]) as app:
        assert app.client.post("/v1/completions", content=body).status_code == 200
        assert app.metric('tenuto_pd_fallbacks_total{why="not_decided"}') == 0


def test_a_decision_that_fails_costs_no_answer(prefill, decode, monkeypatch, caplog):
    def fails(_):
        raise KeyError("secret-session")

    with stack([prefill], [decode], always="remote") as app:
        monkeypatch.setattr(app.app._planner, "plan", fails)
        assert app.ask(100, kv_transfer_params=PARAMS).status_code == 200
        assert app.metric('tenuto_pd_fallbacks_total{why="not_decided"}') == 1
    ((body, _),) = decode.asked
    assert body["kv_transfer_params"] is None
    assert "not_decided kind=KeyError" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    "more",
    [
        {"n": 2},
        {"echo": True},
        {"prompt": ["a", "b"]},
        {"prompt_logprobs": 0},
        {"truncate_prompt_tokens": 50},
    ],
)
def test_what_one_token_does_not_compute_stays_whole(prefill, decode, more):
    with stack([prefill], [decode], always="remote") as app:
        assert app.ask(100, **more).status_code == 200
    assert not prefill.asked


def test_a_body_that_is_no_json_is_refused_by_the_server(prefill, decode):
    with stack([prefill], [decode]) as app:
        answer = app.client.post("/v1/completions", content=b"{")
    assert answer.status_code == 500
    assert not prefill.asked
