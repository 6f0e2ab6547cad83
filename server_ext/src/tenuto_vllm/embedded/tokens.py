"""One UTF-8 byte is one token, and a chat is rendered by one fixed template. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# The chat template of the tiny test model that real vLLM serves; `render` is its equal.
# The newline is an expression because Hugging Face sets Jinja's `trim_blocks`, which eats
# a bare newline after a block tag.
CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}"
    "<|call|>{{ c.function.name }} {{ c.function.arguments | tojson }}"
    "{% endfor %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call in an assistant message; `arguments` is already decoded JSON."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message as the template sees it: content is one string."""

    role: str
    content: str = ""
    calls: tuple[Call, ...] = ()


def encode(text: str) -> tuple[int, ...]:
    """Return the tokens of a text, one per UTF-8 byte, each in [0, 256).

    Raises:
        UnicodeEncodeError: the text holds a lone surrogate.
    """
    return tuple(text.encode())


def render(messages: Iterable[Message], *, add_generation_prompt: bool = True) -> str:
    """Return the prompt of a chat, equal to `CHAT_TEMPLATE` under Hugging Face's Jinja.

    Args:
        messages: the chat, oldest first.
        add_generation_prompt: end with the opening of the assistant's answer.
    """
    lines = [f"<|{m.role}|>{m.content}{render_calls(m.calls)}\n" for m in messages]
    return "".join(lines) + ("<|assistant|>" if add_generation_prompt else "")


def render_calls(calls: Iterable[Call]) -> str:
    """Return tool calls as `render` has them in an assistant's message."""
    return "".join(map(_call, calls))


def _call(call: Call) -> str:
    # Hugging Face's `tojson` keeps non-ASCII text and the order of keys.
    return f"<|call|>{call.name} {json.dumps(call.arguments, ensure_ascii=False)}"
