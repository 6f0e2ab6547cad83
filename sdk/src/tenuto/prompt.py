"""The prompt of a request body: what tells it from another, and where two part. Pure.

The numbers are process-local (built on `hash`): they never travel. The model's name and
sampling parameters take no part, so that a fallback to another model, or a retry with
another temperature, is the same prompt.
"""

from __future__ import annotations

import marshal
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tenuto.shape import is_list, is_object

# A text is cut into pieces of this many characters, and a list of token ids of this many
# tokens, so that two can be compared.
PIECE = 1024
MAX_GROUPS = 48
_32_BITS = 0xFFFF_FFFF
# A prompt that continues what the server holds is told apart by what it names there.
_STATE = ("previous_response_id", "conversation")


class Prompt(NamedTuple):
    """One prompt as its items.

    Attributes:
        key: equal for equal prompts.
        marks: shape (items,), a number for each item, equal for equal items.
        items: the items themselves: instructions, messages or input items, pieces of a text.
        last: the last message or input item, None when the prompt ends in a text.
        stateful: the rest of the prompt is held by the server.
        text: the text, or the token ids, that the last items are pieces of; None when they
            are items of their own.
    """

    key: int
    marks: list[int]
    items: Sequence[Any]
    last: Any
    stateful: bool
    text: Any = None

    @property
    def outline(self) -> Outline:
        """What is kept of the prompt to compare the next one with."""
        rest = len(self.text) % PIECE if self.text is not None else len(_words(self.last))
        return Outline(len(self.marks), 1, self.marks, rest)


def read_prompt(body: Any) -> Prompt | None:
    """Read the prompt of a chat, completions or responses body; None when it has none."""
    if not is_object(body):
        return None
    items = body.get("messages")
    if items.__class__ is not list or not items:
        return _read_other(body)
    # A string's hash is kept with it, so that a message that was here last turn costs no
    # second look at its text.
    marks = [
        hash((role, text))
        if item.__class__ is dict
        and len(item) == 2
        and (text := item.get("content")).__class__ is str
        and (role := item.get("role")).__class__ is str
        else _mark(item)
        for item in items
    ]
    return Prompt(hash(tuple(marks)), marks, items, items[-1], False)


def _read_other(body: Mapping[Any, Any]) -> Prompt | None:
    given = body.get("messages", body.get("input", body.get("prompt")))
    if given is None:
        return None
    last = text = None
    if isinstance(given, str) or (is_list(given) and given and type(given[0]) is int):
        text = given if isinstance(given, str) else tuple(given)
        items: list[Any] = _pieces(text)
    elif is_list(given):
        items = list(given)
        last = items[-1] if items else None
    else:
        items = [given]
    head = body.get("instructions")
    if isinstance(head, str):
        items = [*_pieces(head), *items]
    marks = [_mark(item) for item in items]
    state = [_mark(body[name]) for name in _STATE if body.get(name) is not None]
    key = hash((*marks, None, *state)) if state else hash(tuple(marks))
    return Prompt(key, marks, items, last, bool(state), text)


def _mark(item: Any) -> int:
    if words := _words(item):
        return hash((item["role"], words))
    try:
        return hash((*item, *item.values()) if item.__class__ is dict else _frozen(item))
    except TypeError:
        return hash(_frozen(item))


def _frozen(value: Any) -> bytes:
    """Return bytes that equal JSON values share. Version 2: later ones write identities."""
    try:
        return marshal.dumps(value, 2)
    except ValueError:
        return repr(value).encode("utf-8", "surrogatepass")


def _pieces(text: Any) -> list[Any]:
    if len(text) <= PIECE:
        return [text]
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


def share(prompt: Prompt, items: int) -> float:
    """Return how much of a prompt its first `items` items are, 0 to 1, by their size."""
    whole = len(_frozen(list(prompt.items)))
    return min(1.0, len(_frozen(list(prompt.items[:items]))) / whole)


class Outline(NamedTuple):
    """What is kept of a prompt to compare the next one with.

    Attributes:
        items: how many the prompt has.
        step: how many items each number stands for; the last may stand for fewer.
        marks: once `thinned`, at most 48 numbers of 32 bits, whatever the prompt's length.
        rest: length of the last item's text when more may be added to it, else 0.
    """

    items: int
    step: int
    marks: Sequence[int]
    rest: int = 0


NO_OUTLINE = Outline(0, 1, [])


def thinned(outline: Outline) -> Outline:
    """Return an outline in its small form."""
    items, step, marks, rest = outline
    if step > 1 or isinstance(marks, array):
        return outline
    step = -(-items // MAX_GROUPS) or 1
    return Outline(items, step, array("I", [m & _32_BITS for m in _grouped(marks, step)]), rest)


def kept_items(before: Outline, prompt: Prompt) -> int:
    """Return how many items, from the start, a prompt shares with an earlier one.

    Exact where each number stands for one item, and never too high.
    """
    items, step, marks, _ = before
    same = 0
    for one, two in zip(marks, _start(before, prompt), strict=False):
        if (one ^ two) & _32_BITS:
            return same * step
        same += 1
    return min(same * step, items, len(prompt.marks))


def goes_on(before: Outline, prompt: Prompt) -> bool:
    """Tell whether a prompt starts with all of an earlier one."""
    start = _start(before, prompt)
    if isinstance(before.marks, array):
        return array("I", [mark & _32_BITS for mark in start]) == before.marks
    return start == before.marks


def _start(before: Outline, prompt: Prompt) -> list[int]:
    """Return a prompt's numbers for as much of it as an earlier one has."""
    items, step, _, rest = before
    start = prompt.marks[:items]
    if rest and len(start) == items:
        # What the earlier one ended in may have grown, and then has another number.
        if prompt.text is not None:
            at = (items - 1 - (len(prompt.items) - len(_pieces(prompt.text)))) * PIECE
            start = [*start[:-1], _mark(prompt.text[at : at + rest])]
        elif len(words := _words(item := prompt.items[items - 1])) > rest:
            start = [*start[:-1], hash((item["role"], words[:rest]))]
    return _grouped(start, step)


def _words(item: Any) -> str:
    """Return the text of a message that has nothing but a role and a text."""
    if item.__class__ is dict and len(item) == 2 and item.get("role").__class__ is str:
        words = item.get("content")
        return words if words.__class__ is str else ""
    return ""


def _grouped(marks: Sequence[int], step: int) -> list[int]:
    if step == 1:
        return list(marks)
    return [hash(tuple(marks[at : at + step])) for at in range(0, len(marks), step)]
