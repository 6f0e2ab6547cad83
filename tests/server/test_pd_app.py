"""The application that hands prompts from prefill servers to decode servers, on loopback."""

from __future__ import annotations

import threading

import httpx
import pytest

from tests.loopback import eventually
from tests.server.pd_fakes import FAILED, SESSION, TRANSFER, FakeServer, stack


@pytest.fixture
def prefill():
    return FakeServer("prefill")


@pytest.fixture
def decode():
    return FakeServer("decode")


def bodies(server):
    return [body for body, _ in server.asked]


def test_a_hand_over_is_one_token_there_and_the_whole_answer_here(prefill, decode):
    with stack([prefill], [decode], always="remote") as app:
        answer = app.ask(100)
    assert answer.status_code == 200
    assert answer.json()["choices"] == [{"text": "ab"}]
    assert answer.json()["kv_transfer_params"] is None
    (first,), (second,) = bodies(prefill), bodies(decode)
    assert (first["max_tokens"], first["stream"]) == (1, False)
    assert first["kv_transfer_params"]["do_remote_decode"] is True
    assert second["max_tokens"] == 8
    deadline = second["kv_transfer_params"].pop("tenuto_deadline")
    assert second["kv_transfer_params"] == TRANSFER
    assert isinstance(deadline, float)


def test_both_stages_carry_the_headers_of_the_client(prefill, decode):
    with stack([prefill], [decode], always="remote") as app:
        app.ask(100, "n=3, phase=tool")
    for server in (prefill, decode):
        headers = server.asked[0][1]
        assert headers["x-session-id"] == SESSION
        assert headers["x-agent-turn"] == "n=3, phase=tool"


def test_a_local_turn_reaches_one_server_with_the_body_of_the_client(prefill, decode):
    with stack([prefill], [decode], always="local") as app:
        app.ask(100)
    assert not prefill.asked
    (body,) = bodies(decode)
    assert body == {"model": "tiny", "prompt": list(range(100)), "max_tokens": 8}


def test_a_stream_passes_through_without_what_only_the_application_asked_for(prefill, decode):
    with stack([prefill], [decode], always="remote") as app:
        answer = app.ask(100, stream=True)
        asked = app.ask(100, stream=True, stream_options={"include_usage": True})
        assert eventually(lambda: len(app.told) == 2)
    assert answer.headers["content-type"] == "text/event-stream"
    assert [line[-4:] for line in answer.text.split("\n\n")] == ['"}]}', '"}]}', "ONE]", ""]
    assert '"usage"' not in answer.text
    assert asked.text.count('"usage"') == 1
    assert [told.usage.output for told in app.told] == [2, 2]


def test_a_stream_that_tells_its_length_ends_though_it_becomes_shorter(prefill, decode):
    decode.tells_length = True
    with stack([prefill], [decode], always="local") as app:
        answer = app.ask(100, stream=True)
    assert "content-length" not in answer.headers
    assert answer.text.endswith("data: [DONE]\n\n")


def test_what_only_the_server_takes_for_a_stream_is_one(prefill, decode):
    decode.pause = threading.Event()
    used = b'data: {"choices":[],"usage":{"prompt_tokens":40,"completion_tokens":1}}'
    decode.streamed.append([b'data: {"choices":[{"text":"a"}]}', used])
    body = {"model": "tiny", "prompt": [1] * 40, "stream": 1}
    with stack([prefill], [decode], always="remote") as app:
        with app.client.stream("POST", "/v1/completions", json=body, timeout=5) as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("data: ")
            decode.pause.set()
            # Asked for by whoever wanted it.
            assert used.decode() in list(lines)


def test_the_first_event_does_not_wait_for_the_second(prefill, decode):
    with stack([prefill], [decode], always="local") as app:
        decode.streamed.append([b'data: {"choices":[{"text":"a"}]}'])
        body = {"model": "tiny", "prompt": [1] * 40, "stream": True}
        with app.client.stream("POST", "/v1/completions", json=body) as answer:
            assert next(answer.iter_lines()).startswith("data: ")


@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_client_that_leaves_takes_the_stage_along(prefill, decode, role, is_stream):
    slow = prefill if role == "prefill" else decode
    with stack([prefill], [decode], always="remote") as app:
        slow.is_slow = True
        body = {"model": "tiny", "prompt": [1] * 100, "stream": is_stream}
        with pytest.raises(httpx.ReadTimeout):
            app.client.post("/v1/completions", json=body, timeout=0.3)
        assert eventually(lambda: slow.cancelled == 1)
        assert eventually(lambda: all(not s.queued_tokens for s in app.app.fleet.all()))
        assert all(s.running == 0 for s in app.app.fleet.all())


@pytest.mark.parametrize("status", [500, 503, 429])
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_transfer_that_is_refused_is_computed_here_and_nobody_sees_it(
    prefill, decode, status, is_stream
):
    with stack([prefill], [decode], always="remote") as app:
        decode.statuses.append(status)
        answer = app.ask(100, stream=is_stream)
        assert answer.status_code == 200
        assert eventually(lambda: len(app.told) == 1)
    first, second = bodies(decode)
    assert "kv_transfer_params" in first
    assert "kv_transfer_params" not in second
    assert app.told[0].fallback in {"transfer_failed", "decode_refused"}


def test_a_transfer_that_fails_after_the_stream_began_is_computed_here(prefill, decode):
    with stack([prefill], [decode], always="remote") as app:
        decode.streamed.append([FAILED])
        answer = app.ask(100, stream=True)
    assert "error" not in answer.text
    assert answer.text.endswith("data: [DONE]\n\n")
    assert len(decode.asked) == 2


def test_an_error_of_an_ordinary_answer_is_the_clients_to_see(prefill, decode):
    with stack([prefill], [decode], always="local") as app:
        decode.statuses.append(500)
        assert app.ask(100).status_code == 500
    assert len(decode.asked) == 1


@pytest.mark.parametrize(("status", "is_counted"), [(400, 0), (429, 1), (500, 1), (200, 1)])
def test_a_prefill_that_fails_is_done_where_it_is_decoded(prefill, decode, status, is_counted):
    with stack([prefill], [decode], always="remote") as app:
        prefill.statuses.append(status)
        prefill.transfer = None
        assert app.ask(100).status_code == 200
        assert app.metric('tenuto_pd_fallbacks_total{why="prefill_failed"}') == is_counted
    (body,) = bodies(decode)
    assert "kv_transfer_params" not in body


def test_past_its_deadline_a_transfer_is_dropped(prefill, decode):
    with stack([prefill], [decode], always="remote", lease_s=1e-6) as app:
        assert app.ask(100).status_code == 200
        assert app.metric('tenuto_pd_fallbacks_total{why="deadline"}') == 1
    (body,) = bodies(decode)
    assert "kv_transfer_params" not in body
    assert len(prefill.asked) == 1


def test_a_dead_prefill_server_costs_no_error_and_is_asked_no_more(prefill, decode):
    with stack([prefill], [decode], always="remote") as app:
        prefill.is_dead = True
        assert app.ask(100).status_code == 200
        assert eventually(lambda: not app.app.fleet.prefills[0].node().is_up)
        assert app.ask(100).status_code == 200
    assert len(decode.asked) == 2


def test_a_decode_server_that_is_gone_is_replaced_once_by_another(prefill, decode):
    other = FakeServer("decode")
    with stack([prefill], [decode, other], always="local") as app:
        app.ask(100)
        first, second = (decode, other) if decode.asked else (other, decode)
        first.is_dead = True
        assert app.ask(100).status_code == 200
        assert eventually(lambda: not all(s.is_up for s in app.app.fleet.decodes))
        assert app.ask(100).status_code == 200
    assert second.asked


def test_servers_are_warmed_up_before_they_count(prefill, decode):
    with stack([prefill], [decode]) as app:
        health = app.client.get("/health")
    assert health.status_code == 200
    assert {one["state"] for one in health.json()["servers"]} == {"ready"}
    ordinary, handed = decode.warmed
    assert "kv_transfer_params" not in ordinary
    assert handed["kv_transfer_params"]["do_remote_prefill"] is True


def test_servers_that_differ_hand_nothing_over_and_it_is_said_what_differs(decode):
    metrics = (
        'vllm:cache_config_info{block_size="16",cache_dtype="auto"} 1.0\n'
        'tenuto_transfer_identity{dtype="bfloat16",hash_seed="0",hybrid_off="False"} 1\n'
    )
    other = FakeServer("prefill", version="0.31.0", metrics=metrics)
    with stack([other], [decode], wait=False, always="remote") as app:
        assert eventually(lambda: "differs" in app.app.fleet.prefills[0].problem)
        (source, _) = app.client.get("/health").json()["servers"]
        assert app.ask(100).status_code == 200
    assert source["problem"] == "differs in version, block_size, dtype"
    assert not other.asked


def test_until_a_decode_server_is_ready_there_is_a_reason_to_come_back():
    decode = FakeServer("decode")
    decode.is_dead = True
    with stack([], [decode], wait=False) as app:
        assert app.client.get("/health").status_code == 503
        answer = app.ask(10)
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"


def test_an_external_router_gets_the_decision_and_says_what_came_of_it(prefill, decode):
    with stack([prefill], [decode]) as app:
        url = app.app.fleet.decodes[0].url
        turn = {"session": SESSION, "prompt_tokens": 1000}
        first = app.client.post("/tenuto/place", json=turn).json()
        done = {"decode": url, "prefill": None, "prompt_tokens": 1000, "output_tokens": 25}
        assert app.client.post("/tenuto/place", json={**turn, "answered": done}).json() == {}
        second = app.client.post("/tenuto/place", json={**turn, "prompt_tokens": 1200}).json()
        cut = app.client.post("/tenuto/place", json={**turn, "keep": 64}).json()
        bad = app.client.post("/tenuto/place", json={"session": "x"})
    assert (first["decode"], first["new_tokens"]) == (url, 1000)
    assert second["predicted"][url] == 1024
    assert cut["predicted"][url] == 64
    assert bad.status_code == 400
    assert not prefill.asked
    assert not decode.asked


def test_a_key_guards_the_decisions(prefill, decode):
    key = "0123456789abcdef"
    with stack([prefill], [decode], key=key) as app:
        turn = {"session": SESSION, "prompt_tokens": 1000}
        assert app.client.post("/tenuto/place", json=turn).status_code == 401
        headers = {"Authorization": f"Bearer {key}"}
        answer = app.client.post("/tenuto/place", json=turn, headers=headers)
        assert answer.status_code == 200


def test_a_dry_run_moves_nothing_and_counts_what_it_would_have_gained(prefill, decode, caplog):
    with caplog.at_level("INFO", "tenuto_vllm"), stack([prefill], [decode], shadow=True) as app:
        app.app.fleet.decodes[0].queued_s = 100.0
        assert app.ask(3000).status_code == 200
        assert app.metric("tenuto_pd_shadow_regret_seconds_total") > 90
    assert not prefill.asked
    assert "would_place" in caplog.text
    assert SESSION not in caplog.text


def test_turns_forks_and_compactions_are_foretold(prefill, decode):
    with stack([prefill], [decode], always="local") as app:
        app.ask(1000, "n=0")
        decode.cached = 992
        app.ask(1100, "n=1")
        decode.cached = 64
        app.ask(300, "n=2, phase=compact, keep=70")
        decode.cached = 288
        headers = {"X-Session-ID": "session-0002", "X-Parent-Session-ID": SESSION}
        headers["X-Agent-Turn"] = "n=0, fork=inherit"
        body = {"model": "tiny", "prompt": list(range(400)), "max_tokens": 8}
        app.client.post("/v1/completions", json=body, headers=headers)
        assert eventually(lambda: len(app.told) == 4)
    assert [told.predicted for told in app.told] == [0, 992, 64, 288]
    assert [told.cached for told in app.told] == [0, 992, 64, 288]


def test_numbers_tell_the_roles_apart(prefill, decode):
    with stack([prefill], [decode], always="remote") as app:
        app.ask(100)
        assert app.metric('tenuto_pd_computed_tokens_total{role="prefill"}') == 100
        assert app.metric('tenuto_pd_computed_tokens_total{role="decode"}') == 0
        assert app.metric('tenuto_pd_servers_ready{role="decode"}') == 1
        assert app.metric("tenuto_pd_transferred_tokens_total") == 100
        text = app.client.get("/metrics").text
    assert SESSION not in text


def test_what_is_no_model_call_is_passed_on(prefill, decode):
    with stack([prefill], [decode]) as app:
        assert app.client.get("/v1/models").json()["data"][0]["id"] == "tiny"
