"""The launchers, the seam and the observer on a real vLLM with two ranks."""

from __future__ import annotations

import json
from collections import Counter

import httpx
import pytest

from examples.demo.engines import EngineStartError, vllm_server
from tenuto_vllm.embedded.tokens import Call, Message, encode, render
from tests.loopback import eventually

from .conftest import ASK, OBSERVER, by_engine, finished_by_engine
from .processes import alive_in_group

TURNS = "tenuto_vllm.TurnMiddleware"
MESSAGES = [{"role": "user", "content": "hello"}]
CHAT = ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 8})
COMPLETION = ("/v1/completions", {"prompt": "hello", "max_tokens": 8})
RESPONSE = ("/v1/responses", {"input": "hello", "max_output_tokens": 8})
ANTHROPIC = ("/v1/messages", {"messages": MESSAGES, "max_tokens": 8})
ENDPOINTS = [
    pytest.param(CHAT, id="chat"),
    pytest.param(COMPLETION, id="completions"),
    pytest.param(RESPONSE, id="responses"),
    pytest.param(ANTHROPIC, id="messages"),
]
STREAMING = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def ask(client, endpoint, headers=None, **body):
    path, given = endpoint
    whole = {"model": "tiny", "temperature": 0, **given, **body}
    return client.post(path, json=whole, headers=headers)


def rank_of(answer):
    assert answer.status_code == 200, answer.text
    return int(answer.headers["x-engine-rank"])


def finished_since(client, before, how_many):
    """Return the counters' growth once it is complete; a stream ends before it is counted."""
    for _ in range(500):
        grown = finished_by_engine(client) - before
        if grown.total() >= how_many:
            return grown
    raise AssertionError(f"{grown} after 500 looks, expected {how_many} requests")


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_stock_placement_sends_the_turns_of_one_conversation_to_both_ranks(client, endpoint):
    ranks = [rank_of(ask(client, endpoint)) for _ in range(6)]
    assert set(ranks) == {0, 1}


@STREAMING
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_the_header_names_the_engine_whose_counter_grew(client, finished, endpoint, stream):
    before = finished()
    said = Counter(rank_of(ask(client, endpoint, stream=stream)) for _ in range(4))
    assert finished_since(client, before, 4) == said


@STREAMING
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_wanted_rank_is_obeyed_by_every_endpoint(client, finished, endpoint, stream):
    before = finished()
    wanted = [1, 1, 0, 1]
    got = [
        rank_of(ask(client, endpoint, {"X-Want-Rank": str(rank)}, stream=stream)) for rank in wanted
    ]
    assert got == wanted
    assert finished_since(client, before, 4) == Counter(wanted)


def test_a_wanted_rank_that_does_not_exist_is_left_to_vllm(client):
    ranks = {rank_of(ask(client, CHAT, {"X-Want-Rank": rank})) for rank in ("7", "2", "-1") * 2}
    assert ranks <= {0, 1}


def test_the_rank_header_of_the_client_wins_over_a_wanted_rank(client):
    headers = {"X-Want-Rank": "1", "X-data-parallel-rank": "0"}
    assert [rank_of(ask(client, CHAT, headers)) for _ in range(3)] == [0, 0, 0]


def test_an_answer_from_two_engines_names_neither(client, finished):
    before = finished()
    answer = ask(client, CHAT, n=6, temperature=1)
    assert answer.status_code == 200
    assert set(finished_since(client, before, 6)) == {0, 1}
    assert "x-engine-rank" not in answer.headers


def test_a_wanted_rank_holds_for_every_choice_of_one_answer(client, finished):
    before = finished()
    assert rank_of(ask(client, CHAT, {"X-Want-Rank": "1"}, n=3, temperature=1)) == 1
    assert finished_since(client, before, 3) == Counter({1: 3})


@STREAMING
def test_an_answer_that_no_engine_made_names_none(client, stream):
    answer = ask(client, CHAT, {"X-data-parallel-rank": "9"}, stream=stream)
    assert answer.status_code == (200 if stream else 400)
    assert "out of range" in answer.text
    assert "x-engine-rank" not in answer.headers


def test_other_paths_pass_untouched(client):
    for path in ("/health", "/v1/models", "/metrics"):
        assert "x-engine-rank" not in client.get(path).headers
    tokens = client.post("/tokenize", json={"model": "tiny", "prompt": "abc"})
    assert tokens.json()["tokens"] == list(b"abc")
    assert "x-engine-rank" not in tokens.headers


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_stream_arrives_while_the_engine_still_works_and_ends_with_the_client(client, endpoint):
    path, body = endpoint
    limit = "max_output_tokens" if endpoint is RESPONSE else "max_tokens"
    # Messages knows no ignore_eos; at temperature 0 the random weights never end by themselves.
    body = {"model": "tiny", **body, limit: 12000, "ignore_eos": True, "stream": True}
    body["temperature"] = 0
    before = by_engine(client, "generation_tokens_total")
    with client.stream("POST", path, json=body) as answer:
        rank = rank_of(answer)
        # Held by a name: a generator that is collected closes the answer.
        chunks = answer.iter_raw()
        next(chunks)
        looks = (by_engine(client, "num_requests_running") for _ in range(500))
        assert any(running == Counter({rank: 1}) for running in looks)
    # 12,000 tokens take far longer than these looks.
    assert any(by_engine(client, "num_requests_running").total() == 0 for _ in range(500))
    assert (by_engine(client, "generation_tokens_total") - before).total() < 12000


def test_a_responses_stream_keeps_the_order_of_its_events(client):
    answer = ask(client, RESPONSE, stream=True)
    lines = answer.text.splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[0]["type"] == "response.created"
    assert events[-1]["type"] == "response.completed"


def test_a_prompt_has_as_many_tokens_as_its_rendered_bytes(client):
    call = {"name": "look", "arguments": json.dumps({"where": "Zürich", "n": [1, 2.5]})}
    body = {
        "messages": [
            {"role": "system", "content": "Be brief. 你好"},
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "done"},
        ]
    }
    rendered = render(
        [
            Message("system", "Be brief. 你好"),
            Message("user", "go"),
            Message("assistant", "", (Call("look", {"where": "Zürich", "n": [1, 2.5]}),)),
            Message("tool", "done"),
        ]
    )
    answer = ask(client, CHAT, **body).json()
    assert answer["usage"]["prompt_tokens"] == len(encode(rendered))


@pytest.mark.parametrize("length", [1, 31, 32, 33, 64, 65, 1000])
def test_a_repeated_prompt_is_cached_to_its_last_full_block_before_the_end(client, length):
    prompt = f"{length} ".ljust(length, "x")[:length]
    usage = [
        ask(client, COMPLETION, {"X-Want-Rank": "0"}, prompt=prompt).json()["usage"]
        for _ in range(2)
    ]
    assert [u["prompt_tokens"] for u in usage] == [length, length]
    assert usage[1]["prompt_tokens_details"]["cached_tokens"] == (length - 1) // 32 * 32


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([(b"X-Session-ID", b"s" * 9000)], id="a session id of 9 kB"),
        pytest.param([(b"X-Session-ID", b"\xff\xfe")], id="a value that is not UTF-8"),
        pytest.param(
            [(b"X-data-parallel-rank", b"0"), (b"X-data-parallel-rank", b"1")], id="two ranks"
        ),
        pytest.param([(b"X-data-parallel-rank", "\uff17".encode())], id="a full-width digit"),
        pytest.param([(b"X-data-parallel-rank", b"+1")], id="a signed rank"),
    ],
)
def test_vllm_answers_odd_headers(client, headers):
    assert rank_of(ask(client, CHAT, headers)) in {0, 1}


def test_one_rank_is_rank_zero():
    with (
        vllm_server(ranks=1, middleware=(TURNS, OBSERVER), num_blocks=1024) as server,
        httpx.Client(base_url=server.root_url, timeout=120, trust_env=False) as client,
    ):
        assert rank_of(ask(client, CHAT)) == 0
        assert rank_of(ask(client, RESPONSE, stream=True)) == 0
        marked = {"X-Session-ID": "0123456789abcdef", "X-Agent-Turn": "n=0"}
        assert ask(client, CHAT, marked).headers["x-agent-served"] == "rank=0, home=0, why=first"
        assert client.get("/tenuto/state").json()["dropped"] == {}
        refused = ask(client, CHAT, max_tokens=-5)
        assert refused.status_code == 400
        assert "x-engine-rank" not in refused.headers
    # A killed process takes a moment to give its memory back.
    assert eventually(lambda: alive_in_group(server.pid) == [], timeout_s=30)


def test_two_api_processes_share_the_port_and_leave_nothing_behind():
    with vllm_server(
        ranks=2, api_processes=2, middleware=(ASK, OBSERVER), num_blocks=1024
    ) as server:
        ranks, pids = set(), set()
        for _ in range(200):
            # The kernel gives each new connection to either process.
            answer = httpx.post(
                server.root_url + CHAT[0],
                json={"model": "tiny", **CHAT[1]},
                headers={"X-Want-Rank": "1"},
                timeout=120,
            )
            ranks.add(rank_of(answer))
            pids.add(answer.headers["x-api-pid"])
            if len(pids) == 2:
                break
        assert (len(pids), ranks) == (2, {1})
    # A killed process takes a moment to give its memory back.
    assert eventually(lambda: alive_in_group(server.pid) == [], timeout_s=30)


def test_a_server_that_cannot_start_fails_with_the_end_of_its_log(tmp_path):
    log = tmp_path / "logs" / "server.log"
    with (
        pytest.raises(EngineStartError, match=r"(?s)ended with status 2.*--no-such-option"),
        vllm_server(extra_args=("--no-such-option",), log_path=log),
    ):
        pass
    assert "--no-such-option" in log.read_text()


def test_a_server_that_is_late_is_ended():
    with (
        pytest.raises(EngineStartError, match=r"was not ready in 0.5 s; raise ready_timeout_s"),
        vllm_server(ready_timeout_s=0.5),
    ):
        pass


def test_a_block_size_that_the_cpu_build_refuses_is_refused_at_once():
    with (
        pytest.raises(ValueError, match=r"block_size 16: .* multiple of 32"),
        vllm_server(block_size=16),
    ):
        pass
