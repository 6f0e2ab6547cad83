from __future__ import annotations

import json

import pytest

from tenuto_vllm.embedded.errors import RequestError
from tenuto_vllm.embedded.messages import read_input, read_messages
from tenuto_vllm.embedded.tokens import CHAT_TEMPLATE, Message, encode, render

CALL = {"type": "function", "function": {"name": "add", "arguments": '{"b": "é", "a": [1]}'}}
CHAT = [
    {"role": "system", "content": "Be brief.\n"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "2"},
]
RENDERED = (
    "<|system|>Be brief.\n\n"
    "<|user|>a\nb\n"
    '<|assistant|><|call|>add {"b": "é", "a": [1]}<|call|>add {"b": "é", "a": [1]}\n'
    "<|tool|>2\n"
    "<|assistant|>"
)


def test_a_chat_is_rendered_message_by_message_with_the_answer_opened():
    assert render(read_messages(CHAT)) == RENDERED


def test_the_answer_is_opened_only_on_request():
    text = render([Message("user", "a")], add_generation_prompt=False)
    assert text == "<|user|>a\n"


def test_the_template_renders_what_python_renders():
    jinja2 = pytest.importorskip("jinja2", reason="the template is Jinja; Jinja is not installed")
    # As Hugging Face sets up its environment.
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    messages = [
        {
            "role": m.role,
            "content": m.content,
            "tool_calls": [
                {"function": {"name": c.name, "arguments": c.arguments}} for c in m.calls
            ],
        }
        for m in read_messages(CHAT)
    ]
    template = environment.from_string(CHAT_TEMPLATE)
    assert template.render(messages=messages, add_generation_prompt=True) == RENDERED


def test_a_token_is_a_utf8_byte():
    assert encode("aé") == (97, 0xC3, 0xA9)


def test_arguments_that_are_no_object_become_an_empty_one():
    for arguments in ("", None, "[1]", "not json", "7"):
        call = {"function": {"name": "f", "arguments": arguments}}
        (message,) = read_messages([{"role": "assistant", "tool_calls": [call]}])
        assert message.calls[0].arguments == {}


def test_tool_calls_count_only_in_assistant_messages():
    (message,) = read_messages([{"role": "user", "content": "a", "tool_calls": [CALL]}])
    assert message == Message("user", "a")


def test_empty_parts_leave_no_line():
    parts = [{"type": "text", "text": ""}, {"type": "text", "text": "a"}, "b"]
    (message,) = read_messages([{"role": "user", "content": parts}])
    assert message.content == "a\nb"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "messages must be an array"),
        ([], "messages is empty"),
        (["hi"], "messages must be an object"),
        ([{"content": "a"}], "role must be a string"),
        ([{"role": "user", "content": 3}], "content must be an array, not 3"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "'image_url' is not text"),
        ([{"role": "assistant", "tool_calls": [{}]}], "tool_calls.function must be an object"),
    ],
)
def test_a_chat_that_cannot_be_read_is_refused_by_name(value: object, says: str):
    with pytest.raises(RequestError, match=says.replace("[", r"\[")):
        read_messages(value)


def test_response_items_merge_into_the_assistant_message_before_them():
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "2+2?"}]},
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "T"}]},
        {"type": "function_call", "call_id": "1", "name": "add", "arguments": '{"a": 2}'},
        {"type": "function_call_output", "call_id": "1", "output": "4"},
        {"role": "assistant", "content": "4"},
        {"role": "assistant", "content": "done"},
    ]
    assert render(read_input(items, "Count.")) == (
        '<|system|>Count.\n<|user|>2+2?\n<|assistant|>T<|call|>add {"a": 2}\n<|tool|>4\n'
        "<|assistant|>4\n<|assistant|>done\n<|assistant|>"
    )


def test_a_response_input_may_be_one_text():
    assert render(read_input("hi", None)) == "<|user|>hi\n<|assistant|>"


def test_an_unknown_response_item_is_refused():
    with pytest.raises(RequestError, match="'web_search_call' is not supported"):
        read_input([{"type": "web_search_call"}], None)
