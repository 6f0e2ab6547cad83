"""What a prompt holds, in every API's shape: items to cut, and the results of tools."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.recording.body import Kind, kind_of, read_body
from tenuto.trace import cut

CHAT: Any = [
    {"role": "user", "content": "go"},
    {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "old"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "done"},
    {
        "role": "assistant",
        "tool_calls": [{"id": "2", "type": "function", "function": {"name": "grep"}}],
    },
    {"role": "tool", "tool_call_id": "2", "content": "found"},
]
RESPONSES: Any = [
    {"role": "user", "content": "go"},
    {"type": "function_call", "call_id": "2", "name": "grep"},
    {"type": "function_call_output", "call_id": "2", "output": "found"},
]
MESSAGES: Any = [
    {"role": "user", "content": "go"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "2", "name": "grep"}]},
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "2", "content": "found"}],
    },
]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("chat", {"messages": CHAT}),
        ("responses", {"input": RESPONSES}),
        ("messages", {"messages": MESSAGES}),
    ],
)
def test_the_last_results_of_tools_have_their_calls_names(kind: Kind, body: Any) -> None:
    (result,) = [one for one in read_body(kind, body).results if one.is_last]
    assert (result.call_id, result.name, result.tool_class) == ("2", "grep", "function")
    assert result.output_bytes == len("found")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/chat/completions", "chat"),
        ("/v1/completions", "completions"),
        ("/v1/responses", "responses"),
        ("/v1/messages", "messages"),
        ("/v1/messages/count_tokens", None),
        ("/anthropic/v1/messages", "messages"),
        ("/messages", "messages"),
        ("/openai/deployments/d/chat/completions", "chat"),
        ("/v1/threads/t/messages", None),
        ("/openai/threads/t/messages", None),
        ("/v1/embeddings", None),
    ],
)
def test_a_path_says_which_api_it_is(path: str, kind: Kind | None) -> None:
    assert kind_of(path) == kind


def test_what_is_no_name_is_not_written_as_one() -> None:
    secret: Any = {"text": "secret"}
    last = {"role": "tool", "tool_call_id": secret, "name": secret, "content": "x"}
    asked = read_body("chat", {"model": secret, "messages": [last]})
    assert asked.model is None
    assert "secret" not in str([one._asdict() for one in asked.results])
    assert len(read_body("chat", {"model": "m" * 9999}).model or "") == 256


def test_a_mark_for_caching_that_moves_changes_no_item() -> None:
    marked = [{"role": "user", "content": "go", "cache_control": {"type": "ephemeral"}}]
    assert (
        read_body("messages", {"messages": marked}).items
        == read_body("messages", {"messages": [{"content": "go", "role": "user"}]}).items
    )


@given(st.integers(0, 5000), st.integers(0, 3000))
def test_a_text_that_goes_on_keeps_the_blocks_of_its_whole_pieces(size: int, more: int) -> None:
    first, _ = cut(read_body("completions", {"prompt": "x" * size}).items)
    longer, _ = cut(read_body("completions", {"prompt": "x" * (size + more)}).items)
    whole = size // 1024
    assert longer[:whole] == first[:whole]


@given(st.recursive(st.none() | st.text() | st.integers(), st.lists))
def test_any_body_is_read_without_an_error(value: Any) -> None:
    for body in (value, {"messages": value, "tools": value, "system": value}):
        read_body("messages", body)
