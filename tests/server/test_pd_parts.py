"""The parts of the application that need no server."""

from __future__ import annotations

import json

import pytest

from tenuto_vllm.pd import stages
from tenuto_vllm.pd.alike import differences, facts, untold
from tenuto_vllm.pd.answer import Stream, whole
from tenuto_vllm.pd.asked import read
from tenuto_vllm.pd.contexts import Contexts


def test_of_two_equal_keys_the_one_that_is_written_behind_counts():
    body = json.dumps({"model": "m", "max_tokens": 9, "min_tokens": 3}).encode() + b" \n"
    told = json.loads(stages.prefill(body, json.loads(body), None))
    assert json.loads(stages.prefill(b" { } ", {}, None))["max_tokens"] == 1
    assert (told["model"], told["max_tokens"], told["min_tokens"]) == ("m", 1, 0)


def test_the_earlier_deadline_of_the_two_that_are_told_counts():
    for told, kept in ((5.0, 5.0), (20.0, 10.0), ("soon", 10.0), (True, 10.0)):
        transfer = {"remote_engine_id": "P", "tenuto_deadline": told}
        body = json.loads(stages.decode(b"{}", {"a": 1}, transfer, 10.0, is_stream=False))
        assert body["kv_transfer_params"] == {**transfer, "tenuto_deadline": kept}


def test_what_differs_is_said_and_what_is_not_told_too():
    models = json.dumps({"data": [{"root": "/a", "max_model_len": 8}]}).encode()
    cache = b'vllm:cache_config_info{block_size="16",cache_dtype="auto"} 1.0\n'
    ours = b'tenuto_transfer_identity{dtype="float32",hash_seed="random",hybrid_off="unknown"} 1\n'
    one = facts(b'{"version":"1"}', models, cache + ours)
    other = facts(b'{"version":"2"}', models, cache.replace(b"16", b"32") + ours)
    assert differences(one, other) == ["version", "block_size", "hash_seed"]
    assert untold(one, other) == ["hybrid_off"]
    assert facts(b"<html>", b"", b"\xff") == {}


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_stream_is_read_however_it_is_cut(size):
    used = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    last = json.dumps({"choices": [], "usage": used}, separators=(",", ":"))
    events = ['data: {"choices":[{"text":"é"}]}', f"data: {last}", "data: [DONE]"]
    raw = "".join(event + "\n\n" for event in events).encode()
    for wants in (False, True):
        stream = Stream(wants_usage=wants, holds=0)
        out = b"".join(stream.feed(raw[at : at + size]) for at in range(0, len(raw), size))
        out += stream.end()
        assert out.count(b"data:") == 2 + wants
        assert stream.usage == (5, 2, None)


def test_an_answer_keeps_its_transfer_to_itself():
    usage, transfer, _, body = whole(
        b'{"usage":null,"kv_transfer_params":{"remote_host":"10.0.0.1"}}'
    )
    assert usage is None
    assert transfer == {"remote_host": "10.0.0.1"}
    assert b"10.0.0.1" not in body
    assert whole(b"<html>") == (None, None, None, b"<html>")
    odd = whole(b'{"choices":[{"text":"\\ud800"}],"kv_transfer_params":{"a":1}}').body
    assert json.loads(odd)["choices"] == [{"text": "\ud800"}]


def test_the_next_prompt_is_as_long_as_the_last_one_was_and_what_is_new():
    contexts = Contexts()
    first = read("/v1/completions", [], json.dumps({"prompt": "a" * 800}).encode())
    second = read("/v1/completions", [], json.dumps({"prompt": "a" * 1000}).encode())
    assert first is not None
    assert second is not None
    assert contexts.tokens("session-0001", first) == 200
    contexts.answered("session-0001", first, 400)
    assert contexts.tokens("session-0001", second) == 500


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"a"'])
def test_what_is_no_object_is_left_to_the_servers(body):
    assert read("/v1/completions", [], body) is None
