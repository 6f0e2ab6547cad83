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

# A text prompt is cut into pieces of this many characters, so that two can be compared.
PIECE_CHARS = 1024
MAX_GROUPS = 48
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
    """

    key: int
    marks: list[int]
    items: Sequence[Any]
    last: Any
    stateful: bool


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
    last = None
    if isinstance(given, str):
        items: list[Any] = _pieces(given)
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
    return Prompt(key, marks, items, last, bool(state))


def _mark(item: Any) -> int:
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


def _pieces(text: str) -> list[str]:
    if len(text) <= PIECE_CHARS:
        return [text]
    return [text[at : at + PIECE_CHARS] for at in range(0, len(text), PIECE_CHARS)]


def share(prompt: Prompt, items: int) -> float:
    """Return how much of a prompt its first `items` items are, 0 to 1, by their size."""
    whole = len(_frozen(list(prompt.items)))
    return min(1.0, len(_frozen(list(prompt.items[:items]))) / whole)


class Outline(NamedTuple):
    """What is kept of a prompt to compare the next one with.

    Attributes:
        items: how many the prompt has.
        step: how many items each number stands for; the last may stand for fewer.
        marks: at most 48 numbers, once `thinned`: 8 bytes each whatever the prompt's length.
    """

    items: int
    step: int
    marks: Sequence[int]


NO_OUTLINE = Outline(0, 1, ())


def thinned(outline: Outline) -> Outline:
    """Return an outline in its small form."""
    count, step, marks = outline
    if step > 1 or isinstance(marks, array):
        return outline
    step = -(-count // MAX_GROUPS) or 1
    return Outline(count, step, array("q", _grouped(marks, step)))


def kept_items(before: Outline, prompt: Prompt) -> int:
    """Return how many items, from the start, a prompt shares with an earlier one.

    Exact where each number stands for one item, and never too high.
    """
    count, step, marks = before
    start = prompt.marks[:count]
    if step > 1:
        start = _grouped(start, step)
    same = 0
    for one, two in zip(marks, start, strict=False):
        if one != two:
            return same * step
        same += 1
    return min(same * step, count, len(prompt.marks))


def goes_on(before: Outline, prompt: Prompt) -> bool:
    """Tell whether a prompt starts with all of an earlier one."""
    count, step, marks = before
    start = prompt.marks[:count]
    return (start if step == 1 else _grouped(start, step)) == list(marks)


def _grouped(marks: Sequence[int], step: int) -> list[int]:
    if step == 1:
        return list(marks)
    return [hash(tuple(marks[at : at + step])) for at in range(0, len(marks), step)]
