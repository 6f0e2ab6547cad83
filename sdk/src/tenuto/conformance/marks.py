"""Marks: words in the server's answers that show up again in the prompts built on them.

A prompt that repeats an answer's mark where the model speaks continues that answer, and one
that repeats a mark from a tool call's arguments in its task was started by that call. So the
truth of who continues whom needs no header. A mark is made from the prompt that it answers,
so that two runs of one program see the same marks.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

_MARK = re.compile(r"tnto([0-9a-f]{8}n[0-9]{1,4})x([0-9]?)")


class Mark(NamedTuple):
    """The answer that wrote a mark, and the tool call in it that did, None for its text."""

    answer: str
    call: int | None = None

    def __str__(self) -> str:
        return f"tnto{self.answer}x{'' if self.call is None else self.call}"


def answer_name(digest: str, repeat: int) -> str:
    """Return the name of an answer: of its prompt's digest, and which one it is to that."""
    return f"{digest}n{min(repeat, 9999)}"


def digest(text: str) -> str:
    """Return 8 hex characters that tell a text from others."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def marks_in(text: str) -> list[Mark]:
    """Return the marks of a text, in order."""
    return [Mark(name, int(call) if call else None) for name, call in _MARK.findall(text)]


def without_marks(text: str) -> str:
    """Return the text as it is in every run of the program."""
    return _MARK.sub("tnto", text)
