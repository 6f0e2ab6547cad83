"""What opened a turn, and what is known of it before it is sent. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from tenuto.shape import is_list, is_object

Phase = Literal["start", "user", "tool", "child", "handoff", "compact", "resume"]
Kind = Literal["main", "subagent", "workflow", "compaction", "auxiliary"]
Next = Literal["tool", "user", "child", "end", "unknown"]

_TURN_ROUTES = ("/chat/completions", "/completions", "/responses")
_PLAIN_ROUTES = frozenset(_TURN_ROUTES)
_TOOL_ROLES: Final = frozenset({"tool", "function"})
# What openai-agents names the tool by which one agent hands a conversation to another.
_HANDOFF_TOOL = "transfer_to_"


def is_turn(method: str, url: str) -> bool:
    """Tell whether a request is a model call, so that it can open a turn."""
    if url in _PLAIN_ROUTES:
        return method == "post" or method.upper() == "POST"
    return method.upper() == "POST" and url.split("?", 1)[0].endswith(_TURN_ROUTES)


def phase_of(last: Any) -> Phase | None:
    """Return what opened a turn, from its last message or input item.

    Args:
        last: the item, None for a prompt that is one text.

    Returns:
        `tool` after a tool's result, `compact` after a compaction, `user` after a user's
        words or a text, None when the item does not say.
    """
    if last is None or isinstance(last, str):
        return "user"
    if not is_object(last):
        return None
    role = last.get("role")
    kind = str(last.get("type", ""))
    if role in _TOOL_ROLES or kind.endswith("_output") or _holds_tool_result(last):
        return "tool"
    if kind == "compaction":
        return "compact"
    return "user" if role == "user" else None


def is_handoff(body: Any, last: Any) -> bool:
    """Tell whether the tool call that `last` answers hands the conversation on."""
    if not is_object(body) or not is_object(last):
        return False
    wanted = last.get("tool_call_id", last.get("call_id"))
    items = body.get("messages", body.get("input"))
    if wanted is None or not is_list(items):
        return False
    for item in reversed(items[-_HANDOFF_REACH:]):
        for call_id, name in _calls(item):
            if call_id == wanted:
                return name.startswith(_HANDOFF_TOOL)
    return False


# Parallel results stand between a call and its own; nobody answers more at once.
_HANDOFF_REACH = 16


def _calls(item: Any) -> list[tuple[Any, str]]:
    if not is_object(item):
        return []
    if item.get("type") == "function_call":
        return [(item.get("call_id"), str(item.get("name", "")))]
    calls = item.get("tool_calls")
    if not is_list(calls):
        return []
    found: list[tuple[Any, str]] = []
    for call in calls:
        if is_object(call):
            function = call.get("function")
            name = function.get("name", "") if is_object(function) else ""
            found.append((call.get("id"), str(name)))
    return found


def has_history(body: Any) -> bool:
    """Tell whether a prompt holds something a model said: it began before this call."""
    if not is_object(body):
        return False
    if body.get("previous_response_id") or body.get("conversation"):
        return True
    items = body.get("messages", body.get("input"))
    if not is_list(items):
        return False
    return any(
        is_object(item)
        and (item.get("role") == "assistant" or str(item.get("type", "")).endswith("_call"))
        for item in items
    )


def _holds_tool_result(item: Mapping[Any, Any]) -> bool:
    """Tell whether a message's parts hold a tool's result, as Anthropic's do."""
    parts = item.get("content")
    if not is_list(parts) or not parts:
        return False
    part = parts[-1]
    return is_object(part) and part.get("type") == "tool_result"
