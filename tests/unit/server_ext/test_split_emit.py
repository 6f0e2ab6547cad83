"""A decision arrives in the words of each engine, as its source has them."""

from __future__ import annotations

import json

import pytest

from tenuto_vllm.engine import transfers
from tenuto_vllm.placement.split import PlacementDecision, emit

LOCAL = PlacementDecision(
    "http://10.0.0.2:8000#1", None, None, "warm", 400, 0, {}, 9_000, 0.1, 0.1, 0.1, 0.2
)
REMOTE = LOCAL._replace(prefill="http://10.0.0.1:8100#3", deadline_s=25.0, why="cold")
TRANSFER = {"do_remote_prefill": True, "remote_engine_id": "e", "remote_block_ids": [[1, 2]]}


def test_dynamo_in_direct_mode_gets_its_pins() -> None:
    ids = {"http://10.0.0.2:8000": 7587, "http://10.0.0.1:8100": 7588}
    assert emit.dynamo(LOCAL, ids) == {
        "x-dynamo-worker-instance-id": "7587",
        "x-dynamo-dp-rank": "1",
    }
    assert emit.dynamo(REMOTE, ids) == {
        "x-dynamo-worker-instance-id": "7587",
        "x-dynamo-dp-rank": "1",
        "x-dynamo-prefill-instance-id": "7588",
        "x-dynamo-prefill-dp-rank": "3",
    }
    with pytest.raises(KeyError):
        emit.dynamo(REMOTE, {})


def test_the_sidecar_of_llm_d_prefills_locally_without_its_header() -> None:
    assert emit.llmd_sidecar(LOCAL) == {}
    assert emit.llmd_sidecar(REMOTE) == {"x-prefiller-host-port": "10.0.0.1:8100"}


@pytest.mark.parametrize(
    ("node", "said"),
    [("https://p", "p:443"), ("http://[::1]:8000", "[::1]:8000"), ("p:8100", "p:8100")],
)
def test_a_host_and_port_is_said_of_any_name(node: str, said: str) -> None:
    decision = REMOTE._replace(prefill=node)
    assert emit.llmd_sidecar(decision) == {"x-prefiller-host-port": said}


def test_the_coordinator_of_llm_d_is_asked_for_what_is_cached() -> None:
    assert emit.llmd_coordinator(LOCAL) == {"prefer": "if-available"}
    assert emit.llmd_coordinator(REMOTE) == {}


def test_the_gateway_of_sglang_gets_a_key_and_a_worker() -> None:
    workers = {LOCAL.decode: 2}
    assert emit.smg(LOCAL, "run/1", workers) == {
        "x-smg-routing-key": "run/1",
        "x-smg-target-worker": "2",
    }
    assert emit.smg(LOCAL, "x" * 129, {}) == {}


def test_vllm_router_gets_the_session_in_a_header_and_in_a_body_that_vllm_accepts() -> None:
    body = {"model": "m", "vllm_xargs": {"mine": 1}}
    headers, sent = emit.vllm_router("s-1", body)
    assert headers == {"x-session-id": "s-1"}
    assert sent == {
        "model": "m",
        "vllm_xargs": {
            "mine": 1,
            "session_id": "s-1",
            "agentic_context": '{"program_id":"s-1","session_id":"s-1"}',
        },
    }
    assert body == {"model": "m", "vllm_xargs": {"mine": 1}}
    said = {"vllm_xargs": {"session_id": "own", "agentic_context": "{}"}}
    assert emit.vllm_router("s-1", said)[1] == said


def test_the_first_stage_computes_the_prompt_and_keeps_its_blocks() -> None:
    body = {
        "prompt": "x",
        "max_tokens": 500,
        "max_completion_tokens": 500,
        "min_tokens": 9,
        "n": 2,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
    }
    assert emit.prefill_body(body) == {
        "prompt": "x",
        "temperature": 0,
        "max_tokens": 1,
        "max_completion_tokens": 1,
        "stream": False,
        "kv_transfer_params": {
            "do_remote_decode": True,
            "do_remote_prefill": False,
            "remote_engine_id": None,
            "remote_block_ids": None,
            "remote_host": None,
            "remote_port": None,
        },
    }
    fetched = {"do_remote_decode": True, "remote_engine_id": "d"}
    assert emit.prefill_body(body, fetched)["kv_transfer_params"] == fetched
    assert json.dumps(body["stream"]) == "true"


def test_the_second_stage_fetches_the_blocks_before_the_deadline_and_not_after() -> None:
    body = {"prompt": "x", "stream": True}
    assert emit.decode_body(REMOTE, body, TRANSFER, 24.9) == {
        **body,
        "kv_transfer_params": TRANSFER,
    }
    assert emit.decode_body(REMOTE, body, TRANSFER, 25.0) == body
    assert emit.decode_body(REMOTE, body, None) == body
    assert emit.decode_body(LOCAL, body, TRANSFER) == body


def test_the_decode_side_is_told_the_deadline_by_a_clock_that_both_share() -> None:
    sent = emit.decode_body(REMOTE, {"prompt": "x"}, TRANSFER, 1.0, prefilled_at_s=1e9)
    assert sent["kv_transfer_params"] == {**TRANSFER, transfers.DEADLINE: 1e9 + 25.0}
    assert transfers.DEADLINE not in TRANSFER
    stamped = {**TRANSFER, transfers.DEADLINE: 1e9 + 20.0}
    assert emit.decode_body(REMOTE, {}, stamped, 1.0)["kv_transfer_params"] == stamped
    sent = emit.decode_body(REMOTE, {}, stamped, 1.0, prefilled_at_s=1e9)
    assert sent["kv_transfer_params"] == stamped


def test_a_client_names_no_blocks_of_others() -> None:
    body = {"prompt": "x", "kv_transfer_params": {"remote_block_ids": [[9]]}}
    assert emit.decode_body(LOCAL, body, None) == {"prompt": "x"}
    assert emit.prefill_body(body)["kv_transfer_params"] == dict(emit.PREFILL_PARAMS)


def test_a_rank_is_said_to_vllm_where_a_name_has_one() -> None:
    assert emit.rank_header("http://d:1#12") == {"x-data-parallel-rank": "12"}
    assert emit.rank_header("http://d:1") == emit.rank_header("http://d:1#x") == {}
