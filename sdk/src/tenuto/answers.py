"""What an answer says of its turn: its tokens, and what it is followed by. Pure.

Answers come as openai's objects, whole or in chunks, or as JSON where a caller asked for
the raw response; both are read the same way.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tenuto.turn import Next

_ENDS_BY_TOOL = frozenset({"tool_calls", "function_call"})
# Of the calls in a response, those that the program answers and not the server.
_TOOL_ITEMS = frozenset(
    {
        *("function_call", "custom_tool_call", "computer_call", "local_shell_call", "shell_call"),
        *("apply_patch_call", "mcp_approval_request"),
    }
)
_ENDED = frozenset({"completed", "incomplete", "failed", "cancelled"})
_MAX_TOOLS = 32
_MAX_COUNT = 999_999_999
_DONE = frozenset({"response.completed", "response.incomplete", "response.failed"})
# A raw answer over this size is not looked through.
_MAX_RAW_BYTES = 1 << 20


class Answer(NamedTuple):
    """What was read so far; fields are None or empty where the answer does not say.

    Attributes:
        prompt_tokens: of the prompt.
        output_tokens: of the answer.
        finish: the finish reason, or a response's status.
        tools: names of the tools it calls, in order.
    """

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    finish: str | None = None
    tools: tuple[str, ...] = ()

    @property
    def next(self) -> Next | None:
        """What the wait after the answer ends with; None while that is not known."""
        if self.tools or self.finish in _ENDS_BY_TOOL:
            return "tool"
        return "user" if self.finish is not None else None


NOTHING = Answer()


def read_answer(value: Any, so_far: Answer = NOTHING) -> Answer:
    """Read a whole answer, one chunk of it, or one event of a response's stream."""
    choices = _get(value, "choices")
    if choices is None:
        kind = _get(value, "type")
        if isinstance(kind, str) and kind.startswith("response."):
            return _read_response(_get(value, "response"), so_far) if kind in _DONE else so_far
        return _read_response(value, so_far) if _get(value, "output") is not None else so_far
    finish, tools = so_far.finish, so_far.tools
    for choice in choices:
        finish = _get(choice, "finish_reason") or finish
        message = _get(choice, "message") or _get(choice, "delta")
        for call in (_get(message, "tool_calls") or ()) if message is not None else ():
            name = _get(_get(call, "function"), "name") or _get(_get(call, "custom"), "name")
            at = _get(call, "index")
            # Some servers say the name again in each chunk.
            is_said = type(at) is int and at < len(tools)
            if name and not is_said and len(tools) < _MAX_TOOLS:
                tools = (*tools, str(name))
    usage = _get(value, "usage")
    if usage is None:
        return Answer(so_far.prompt_tokens, so_far.output_tokens, finish, tools)
    prompt, output = _get(usage, "prompt_tokens"), _get(usage, "completion_tokens")
    return Answer(_count(prompt), _count(output), finish, tools)


def read_raw(content: bytes, kind: str) -> Answer:
    """Read the body of an answer that no one has parsed yet."""
    if not kind.startswith("application/json") or len(content) > _MAX_RAW_BYTES:
        return NOTHING
    return read_answer(json.loads(content))


def _read_response(value: Any, so_far: Answer) -> Answer:
    tools = tuple(
        str(_get(item, "name") or _get(item, "type"))
        for item in _get(value, "output") or ()
        if _get(item, "type") in _TOOL_ITEMS
    )[:_MAX_TOOLS]
    status = _get(value, "status")
    # One in the background is still being made.
    finish = status if status in _ENDED else None
    usage = _get(value, "usage")
    if usage is None:
        return so_far._replace(finish=finish, tools=tools)
    prompt, output = _get(usage, "input_tokens"), _get(usage, "output_tokens")
    return Answer(_count(prompt), _count(output), finish, tools)


def _get(value: Any, name: str) -> Any:
    return value.get(name) if value.__class__ is dict else getattr(value, name, None)


def _count(value: Any) -> int | None:
    return min(value, _MAX_COUNT) if type(value) is int and value >= 0 else None
