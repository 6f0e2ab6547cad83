"""How an answer ended, found in its bytes: on vLLM's own answers, in pieces, over real sockets."""

from __future__ import annotations

import gzip
import json
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto_vllm.asgi.finish import MOST_KEPT, finish_of
from tests.hinted import HintedApp, hinted
from tests.loopback import eventually

SID = "0123456789abcdef"
CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
MESSAGES, COHERE = "/v1/messages", "/cohere/v2/chat"


def chat(reason: str | None, content: str = "hi") -> bytes:
    """An answer as vLLM 0.32 writes it."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": content, "function_call": None},
        "logprobs": None,
        "finish_reason": reason,
        "stop_reason": None,
        "token_ids": None,
    }
    usage = {"prompt_tokens": 30, "prompt_tokens_details": {"cached_tokens": 0}}
    answer = {"id": "c", "choices": [choice], "usage": usage, "kv_transfer_params": None}
    return json.dumps(answer, separators=(",", ":")).encode()


def events(*data: Any) -> bytes:
    lines = [f"data: {json.dumps(one, separators=(',', ':'))}\n\n" for one in data]
    return "".join(lines).encode()


def chat_stream(reason: str, content: str = "hi") -> bytes:
    parts = [
        {"choices": [{"delta": {"content": content}, "finish_reason": None}]},
        {"choices": [{"delta": {}, "finish_reason": reason, "stop_reason": None}]},
        {"choices": [], "usage": {"prompt_tokens": 30}},
    ]
    return events(*parts) + b"data: [DONE]\n\n"


def message(reason: str, *blocks: Any) -> bytes:
    answer = {"id": "m", "content": blocks, "model": "m", "stop_reason": reason, "usage": {}}
    return json.dumps(answer, separators=(",", ":")).encode()


def message_stream(reason: str) -> bytes:
    return events(
        {"type": "message_start", "message": {"content": [], "stop_reason": None}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hi"}},
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}},
        {"type": "message_stop"},
    )


def response(status: str, *items: Any, tools: Any = ()) -> bytes:
    answer = {
        "id": "r",
        "output": [{"status": "completed", "type": "message"}, *items],
        "tools": tools,
        "status": status,
        "text": {"format": {"schema": {"properties": {"status": {"type": "string"}}}}},
        "usage": {"input_tokens": 30},
    }
    return json.dumps(answer, separators=(",", ":")).encode()


def call(kind: str = "function_call") -> dict[str, str]:
    return {"arguments": "{}", "type": kind, "status": "completed"}


def response_stream(status: str, *items: Any) -> bytes:
    added = [{"item": item, "type": "response.output_item.added"} for item in items]
    text = [{"delta": "hi", "type": "response.output_text.delta"}] * 200
    last = {"response": json.loads(response(status, *items)), "type": "response.completed"}
    return events(*added, *text, last)


FALSE = (
    '"finish_reason":"stop","stop_reason":"end_turn","status":"completed","type":"function_call"'
)
MANY_TOOLS = [{"type": "function", "name": f"tool-{n}", "description": "x" * 80} for n in range(99)]
SAMPLES: dict[str, tuple[str, bytes, str | None]] = {
    "chat, tools": (CHAT, chat("tool_calls"), "tool"),
    "chat, the old word": (CHAT, chat("function_call"), "tool"),
    "chat, stop": (CHAT, chat("stop"), "user"),
    "chat, length": (CHAT, chat("length"), None),
    "chat, none": (CHAT, chat(None), None),
    "chat, a text like it": (CHAT, chat("length", FALSE), None),
    "chat, a text like it inside a text": (CHAT, chat("length", json.dumps(FALSE)), None),
    "chat, a long text": (CHAT, chat("tool_calls", "x" * 9000), "tool"),
    "chat, with spaces": (CHAT, json.dumps(json.loads(chat("stop"))).encode(), "user"),
    "chat, indented": (CHAT, json.dumps(json.loads(chat("stop")), indent=4).encode(), "user"),
    "chat, streamed tools": (CHAT, chat_stream("tool_calls"), "tool"),
    "chat, streamed stop": (CHAT, chat_stream("stop", FALSE), "user"),
    "chat, broken off": (CHAT, chat_stream("stop")[:60], None),
    "completions": (TEXT, chat("stop"), "user"),
    "batch": ("/v1/chat/completions/batch", chat("stop"), "user"),
    "invocations": ("/invocations", chat("tool_calls"), "tool"),
    "messages, tools": (MESSAGES, message("tool_use"), "tool"),
    "messages, a tool's own words": (
        MESSAGES,
        message("tool_use", {"type": "tool_use", "input": {"stop_reason": "end_turn"}}),
        "tool",
    ),
    "messages, stop": (MESSAGES, message("end_turn"), "user"),
    "messages, length": (MESSAGES, message("max_tokens"), None),
    "messages, streamed tools": (MESSAGES, message_stream("tool_use"), "tool"),
    "messages, streamed stop": (MESSAGES, message_stream("end_turn"), "user"),
    "Cohere, tools": (COHERE, b'{"delta":{"finish_reason":"TOOL_CALL"}}', "tool"),
    "Cohere, stop": (COHERE, b'{"delta":{"finish_reason":"COMPLETE"}}', "user"),
    "responses, tools": (RESPONSES, response("completed", call(), tools=MANY_TOOLS), "tool"),
    "responses, own tool": (RESPONSES, response("completed", call("custom_tool_call")), "tool"),
    "responses, the server's": (RESPONSES, response("completed", call("web_search_call")), "user"),
    "responses, text": (RESPONSES, response("completed", tools=MANY_TOOLS), "user"),
    "responses, a text like it": (RESPONSES, response("completed", {"text": FALSE}), "user"),
    "responses, length": (RESPONSES, response("incomplete", call()), None),
    "responses, streamed tools": (RESPONSES, response_stream("completed", call()), "tool"),
    "responses, streamed text": (RESPONSES, response_stream("completed"), "user"),
    "responses, streamed length": (RESPONSES, response_stream("incomplete", call()), None),
    "nothing": (CHAT, b"", None),
    "no JSON": (CHAT, b"\xff\x00" * 40, None),
}


def wait_after(path: str, *parts: bytes) -> str | None:
    finish = finish_of(path)
    assert finish is not None
    for part in parts:
        finish.feed(part)
    return finish.wait()


@pytest.mark.parametrize("name", SAMPLES)
def test_an_answer_says_what_it_waits_for(name: str) -> None:
    path, body, wait = SAMPLES[name]
    assert wait_after(path, body) == wait


@given(st.sampled_from(sorted(SAMPLES)), st.data())
def test_in_whatever_pieces_it_comes_it_says_the_same(name: str, data: st.DataObject) -> None:
    path, body, wait = SAMPLES[name]
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=12))
    edges = sorted({0, len(body), *cuts})
    parts = [body[start:end] for start, end in pairwise(edges)]
    assert wait_after(path, *parts) == wait


@pytest.mark.parametrize("name", SAMPLES)
def test_byte_by_byte_it_says_the_same(name: str) -> None:
    path, body, wait = SAMPLES[name]
    assert wait_after(path, *(body[at : at + 1] for at in range(len(body)))) == wait


@given(st.text(), st.sampled_from(["length", "content_filter"]))
def test_no_text_of_a_model_looks_like_an_end(text: str, reason: str) -> None:
    said = json.loads(chat(reason, text + FALSE + text))
    for body in (chat(reason, text + FALSE), json.dumps(said, ensure_ascii=False).encode()):
        assert wait_after(CHAT, body) is None


@given(st.integers(0, 40))
def test_a_text_that_is_cut_where_the_window_begins_looks_like_no_end(cut: int) -> None:
    escaped = rb"\"finish_reason\":\"stop\" "
    assert wait_after(CHAT, escaped + b"x" * (MOST_KEPT - len(escaped) + cut)) is None
    whole = b'"finish_reason":"stop"'
    assert wait_after(CHAT, whole + b"x" * (MOST_KEPT - len(whole) + cut)) == (
        None if cut else "user"
    )


@given(st.sampled_from([CHAT, RESPONSES, MESSAGES]), st.lists(st.binary(max_size=99)))
def test_any_bytes_say_something_or_nothing(path: str, parts: list[bytes]) -> None:
    assert wait_after(path, *parts) in {"tool", "user", None}


def test_a_route_of_tokens_says_nothing() -> None:
    assert finish_of("/inference/v1/generate") is None


def told(
    app: HintedApp, path: str, body: bytes, *, turn: str = "n=1", step: int = 7, **headers: str
) -> list[Any]:
    app.answer = headers, [body[at : at + step] for at in range(0, len(body), step)]
    with hinted(app) as http:
        asked = {"X-Session-ID": SID, "X-Agent-Turn": turn, "Accept-Encoding": "identity"}
        with http.stream("POST", path, json={}, headers=asked) as answer:
            assert b"".join(answer.iter_raw()) == body
        # Told last, so that what comes before has been told when it is.
        http.post("/tenuto/turns", json=[{"session": "the-last-one"}])
        assert eventually(lambda: any(turn[0] == "the-last-one" for turn in app.turns()))
    return [turn for turn in app.turns() if turn[0] != "the-last-one"]


@pytest.mark.parametrize("name", ["chat, streamed tools", "messages, tools", "responses, tools"])
def test_the_engine_is_told_and_the_client_gets_the_answer_as_it_was(name: str) -> None:
    path, body, _ = SAMPLES[name]
    app = HintedApp()
    assert told(app, path, body) == [[SID, "tool", None, None]]


def test_what_the_client_has_said_of_the_wait_goes_with_it() -> None:
    said = told(HintedApp(), CHAT, chat("stop"), turn="next=unknown, gap=900, ttl=30")
    assert said == [[SID, "user", 900, 30]]


@pytest.mark.parametrize("turn", ["next=user", "next=end", "class=auxiliary"])
def test_what_the_client_says_comes_next_stands_and_a_side_call_says_nothing(turn: str) -> None:
    assert told(HintedApp(), CHAT, chat("tool_calls"), turn=turn) == []


def test_a_compressed_answer_tells_nothing() -> None:
    body = gzip.compress(chat("stop"))
    assert told(HintedApp(), CHAT, body, **{"content-encoding": "gzip"}) == []
    # A server that calls it so and does not do it is not believed either.
    assert told(HintedApp(), CHAT, chat("stop"), **{"content-encoding": "br"}) == []
    assert told(HintedApp(), CHAT, chat("stop"), **{"content-encoding": "identity"}) != []


def test_it_is_told_to_the_rank_that_served() -> None:
    app = HintedApp(ranks=4)
    app.answer = {}, [chat("tool_calls")]
    with hinted(app) as http:
        token = http.post(CHAT, json={}, headers={"X-Session-ID": SID, "X-Agent-Turn": "n=0"})
        rank = int(token.headers["X-Agent-Served"].partition("rank=")[2][0])
        assert eventually(lambda: len(app.told) == 1)
    assert [where for where, _ in app.told] == [rank]


def test_it_is_told_to_the_rank_that_vllm_chose_whatever_was_asked_for() -> None:
    app = HintedApp(ranks=4)
    app.answer = {}, [chat("tool_calls")]
    app.state.engine_client.engine_core.get_core_engine_for_request = lambda _: b"3"
    with hinted(app) as http:
        for n in range(4):
            http.post(CHAT, json={}, headers={"X-Session-ID": f"session-{n}"})
        assert eventually(lambda: len(app.turns()) == 4)
    assert {where for where, _ in app.told} == {3}


def test_following_a_stream_costs_little_and_keeps_little() -> None:
    finish = finish_of(CHAT)
    assert finish is not None
    chunk = events({"choices": [{"delta": {"content": "hi"}, "finish_reason": None}]})
    began_s = time.perf_counter()
    for _ in range(20_000):
        finish.feed(chunk)
    each_s = (time.perf_counter() - began_s) / 20_000
    assert each_s < 20e-6
    assert finish._held <= 5 * MOST_KEPT  # type: ignore[attr-defined]
    finish.wait()
    assert finish._held == MOST_KEPT  # type: ignore[attr-defined]
