"""Chat messages as clients send them, read the way vLLM reads them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from tenuto_vllm.embedded.errors import RequestError
from tenuto_vllm.embedded.fields import as_list, as_object, as_text
from tenuto_vllm.embedded.tokens import Call, Message

# Part type -> the key that holds its text.
_TEXT_PARTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}


def read_messages(value: object) -> list[Message]:
    """Return a chat's messages.

    Text parts are joined by newlines, empty ones left out; tool calls count only in
    assistant messages; arguments that are not a JSON object become `{}`.

    Raises:
        RequestError: not a list of messages, or a part that is not text.
    """
    messages = as_list(value, "messages")
    if not messages:
        raise RequestError("messages is empty; send at least one.", param="messages")
    return [read_message(as_object(message, "messages")) for message in messages]


def read_message(message: Mapping[str, Any]) -> Message:
    """Return one message; see `read_messages`."""
    role = as_text(message.get("role"), "role")
    calls: tuple[Call, ...] = ()
    if role == "assistant" and message.get("tool_calls") is not None:
        calls = tuple(map(_read_call, as_list(message["tool_calls"], "tool_calls")))
    return Message(role, read_content(message.get("content")), calls)


def read_content(content: object) -> str:
    """Return a message's content, a string, null or a list of parts, as one string."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = [_read_part(part) for part in as_list(content, "content")]
    return "\n".join(filter(None, parts))


def _read_part(part: object) -> str:
    if isinstance(part, str):
        return part
    fields = as_object(part, "content")
    kind = fields.get("type", "text")
    key = _TEXT_PARTS.get(kind) if isinstance(kind, str) else None
    if key is None:
        raise RequestError(
            f"A content part of type {kind!r} is not text; the embedded engine reads text only.",
            param="content",
        )
    text = fields.get(key)
    return "" if text is None else as_text(text, "content")


def _read_call(value: object) -> Call:
    function = as_object(as_object(value, "tool_calls").get("function"), "tool_calls.function")
    name = as_text(function.get("name"), "tool_calls.function.name")
    return Call(name, read_arguments(function.get("arguments")))


def read_arguments(arguments: object) -> Mapping[str, Any]:
    """Return a call's arguments as an object; anything else in a chat's past is `{}`."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            arguments = None
    return cast("Mapping[str, Any]", arguments) if isinstance(arguments, Mapping) else {}


def read_input(value: object, instructions: object) -> list[Message]:
    """Return the messages of a Responses request, merged as vLLM merges its items.

    A function call, a reasoning item or an assistant's text joins the assistant message
    before it when that has none yet.

    Args:
        value: `input`: a string or a list of items.
        instructions: the system message, or None.

    Raises:
        RequestError: an item of a kind that has no text.
    """
    chat: list[dict[str, Any]] = []
    if instructions:
        chat.append({"role": "system", "content": as_text(instructions, "instructions")})
    if isinstance(value, str):
        chat.append({"role": "user", "content": value})
    else:
        for item in as_list(value, "input"):
            _add_item(chat, as_object(item, "input"))
    return read_messages(chat)


def _add_item(chat: list[dict[str, Any]], item: Mapping[str, Any]) -> None:
    match item.get("type", "message"):
        case "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            _assistant(chat, merge=True).setdefault("tool_calls", []).append({"function": function})
        case "function_call_output":
            chat.append({"role": "tool", "content": item.get("output")})
        case "reasoning":
            _assistant(chat, without="reasoning")["reasoning"] = True
        case "message" if item.get("role") == "assistant":
            _assistant(chat, without="content")["content"] = _first_text(item.get("content"))
        case "message":
            chat.append({"role": item.get("role"), "content": item.get("content")})
        case kind:
            raise RequestError(
                f"An input item of type {kind!r} is not supported by the embedded engine.",
                param="input",
            )


def _assistant(
    chat: list[dict[str, Any]], *, without: str = "", merge: bool = False
) -> dict[str, Any]:
    """Return the assistant message that an item joins, appended if there is none."""
    last = chat[-1] if chat else {}
    if last.get("role") != "assistant" or not (merge or last.get(without) is None):
        last = {"role": "assistant"}
        chat.append(last)
    return last


def _first_text(content: object) -> object:
    # vLLM takes the first part of an assistant's earlier answer and no other.
    if isinstance(content, Sequence) and not isinstance(content, str):
        return cast("Sequence[Any]", content)[:1]
    return content
