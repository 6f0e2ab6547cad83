"""What an answer says is the same in every shape, whole or streamed, and up to where it came."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.recording.answer import Said, events, read_events, read_whole

CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "grep", "arguments": "{"}}
CHAT: list[dict[str, Any]] = [
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
    {"choices": [{"index": 0, "delta": {"content": "he"}}]},
    {"choices": [{"index": 0, "delta": {"content": "y", "tool_calls": [CALL]}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [CALL]}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}},
]
RESPONSE: dict[str, Any] = {
    "object": "response",
    "status": "completed",
    "error": None,
    "output": [
        {"type": "message", "content": [{"type": "output_text", "text": "he"}]},
        {"type": "message", "content": [{"type": "output_text", "text": "y"}]},
        {"type": "function_call", "name": "grep", "call_id": "c"},
    ],
    "usage": {
        "input_tokens": 9,
        "output_tokens": 2,
        "input_tokens_details": {"cached_tokens": 4},
    },
}
RESPONSES = [
    {"type": "response.created", "response": {**RESPONSE, "status": "in_progress", "usage": None}},
    {"type": "response.output_text.delta", "delta": "he"},
    {"type": "response.output_text.delta", "delta": "y"},
    {"type": "response.output_text.done", "text": "hey"},
    {"type": "response.output_item.done", "item": RESPONSE["output"][2]},
    {"type": "response.completed", "response": RESPONSE},
]
USAGE = {"input_tokens": 2, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 3}
MESSAGE: dict[str, Any] = {
    "type": "message",
    "content": [{"type": "text", "text": "hey"}, {"type": "tool_use", "name": "grep", "id": "c"}],
    "stop_reason": "tool_use",
    "usage": {**USAGE, "output_tokens": 2},
}
MESSAGES = [
    {"type": "message_start", "message": {"type": "message", "content": [], "usage": USAGE}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "he"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "y"}},
    {"type": "content_block_start", "index": 1, "content_block": MESSAGE["content"][1]},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
]


def streamed(pieces: list[dict[str, Any]], end: str = "\n") -> bytes:
    return "".join(f"event: e{end}data: {json.dumps(one)}{end}{end}" for one in pieces).encode()


@pytest.mark.parametrize(
    ("said", "finish", "cached", "output_bytes"),
    [
        (read_events(streamed(CHAT)), "tool_calls", None, 3 + 2),
        (read_whole(json.dumps(RESPONSE).encode()), "completed", 4, 3),
        (read_events(streamed(RESPONSES, "\r\n")), "completed", 4, 3),
        (read_whole(json.dumps(MESSAGE).encode()), "tool_use", 4, 3),
        (read_events(streamed(MESSAGES)), "tool_use", 4, 3),
    ],
)
def test_text_tools_tokens_and_end_are_read_once_each(
    said: Said, finish: str, cached: int | None, output_bytes: int
) -> None:
    assert said._replace(first_at=None, response_id=None, output=()) == Said(
        *(9, 2, cached, finish, "hey", ("grep",)), ended=True, output_bytes=output_bytes
    )


FUNCTION = {"name": "grep", "arguments": '{"a": 1}'}
USED = {"type": "tool_use", "name": "grep", "id": "c", "input": {"a": 1}}
CALLED = {"type": "function_call", **FUNCTION}


@pytest.mark.parametrize(
    "said",
    [
        read_whole(json.dumps(one).encode())
        for one in (
            {
                "choices": [
                    {
                        "message": {
                            "content": "é",
                            "reasoning": "why",
                            "tool_calls": [{"function": FUNCTION}],
                        }
                    }
                ]
            },
            {"content": [{"type": "thinking", "thinking": "why"}, {"text": "é"}, USED]},
        )
    ]
    + [
        read_events(streamed(pieces))
        for pieces in (
            [
                {"choices": [{"delta": {"reasoning": "why", "reasoning_content": "why"}}]},
                {"choices": [{"delta": {"content": "é"}}]},
                {"choices": [{"delta": {"tool_calls": [{"function": FUNCTION}]}}]},
            ],
            [
                {"type": "response.reasoning_text.delta", "delta": "why"},
                {"type": "response.output_text.delta", "delta": "é"},
                {"type": "response.function_call_arguments.delta", "delta": '{"a": 1}'},
                {
                    "type": "response.completed",
                    "response": {**RESPONSE, "output": [CALLED, *RESPONSE["output"]]},
                },
            ],
            [
                {"type": "content_block_delta", "delta": {"thinking": "why"}},
                {"type": "content_block_delta", "delta": {"text": "é"}},
                {"type": "content_block_start", "content_block": {**USED, "input": {}}},
                {"type": "content_block_delta", "delta": {"partial_json": '{"a": 1}'}},
            ],
        )
    ],
)
def test_an_answer_weighs_its_text_its_reasoning_and_its_arguments_once(said: Said) -> None:
    assert said.output_bytes == len('é{"a": 1}why'.encode())


def test_an_answer_without_any_of_these_has_no_weight() -> None:
    assert read_whole(b'{"error": {"code": "busy"}}').output_bytes is None


@pytest.mark.parametrize(("pieces", "first"), [(CHAT, 1), (RESPONSES, 1), (MESSAGES, 2)])
def test_the_first_token_is_the_first_event_with_a_piece_of_the_answer(
    pieces: list[dict[str, Any]], first: int
) -> None:
    assert read_events(streamed(pieces)).first_at == len(streamed(pieces[: first + 1]))


def test_an_error_in_place_of_the_rest_is_its_kind_without_its_words() -> None:
    said = read_events(streamed([*CHAT[:2], {"error": {"code": "a b/c", "message": "secret"}}]))
    assert (said.error, said.ended, said.text) == ("a_b_c", False, "he")


def test_an_answer_that_is_no_json_has_not_ended() -> None:
    assert read_whole(b'{"choices": [') == Said()


@given(st.integers(0, len(streamed(CHAT))))
def test_a_stream_that_is_cut_anywhere_is_read_up_to_there(size: int) -> None:
    said = read_events(streamed(CHAT)[:size])
    assert "hey".startswith(said.text)
    assert said.ended == (said.finish_reason is not None)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(content: bytes) -> None:
    read_events(b"data: " + content)
    read_whole(content)
    assert all(0 < end <= len(content) for end, _ in events(content))
