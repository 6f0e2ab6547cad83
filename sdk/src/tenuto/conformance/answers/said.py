"""What one answer says, before it takes an API's shape."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tenuto.conformance.tools import ToolCall

_PIECES = 3


@dataclass(frozen=True, slots=True)
class Said:
    """One answer: words, or tool calls.

    Attributes:
        name: makes the answer's id, and is repeated where a client names it.
        model: as the request named it.
        text: the words, "" beside tool calls.
        prompt_tokens: a rough count, so that usage is not zero.
    """

    name: str
    model: str
    text: str
    calls: tuple[ToolCall, ...]
    prompt_tokens: int

    @property
    def output_tokens(self) -> int:
        """A rough count of the answer's tokens."""
        return 1 + len(self.text) // 4 + 8 * len(self.calls)

    @property
    def id(self) -> str:
        """The answer's id without its API's prefix; it holds the answer's mark."""
        return f"tnto{self.name}x"


def pieces(text: str) -> list[str]:
    """Return a text cut as it is streamed, at most three pieces."""
    size = -(-len(text) // _PIECES) or 1
    return [text[at : at + size] for at in range(0, len(text), size)]


def arguments(call: ToolCall) -> str:
    """Return a call's arguments as the JSON text that most APIs send."""
    return json.dumps(call.arguments)
