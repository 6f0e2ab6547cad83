"""What a request asks for, in any of the shapes that model servers take. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from tenuto.conformance.marks import Mark, digest, marks_in, without_marks
from tenuto.conformance.shapes import record, sequence, text

Kind = Literal["chat", "completions", "responses", "messages"]
Role = Literal["system", "user", "model", "tool"]

_ENDINGS: tuple[tuple[str, Kind], ...] = (
    ("/chat/completions", "chat"),
    ("/completions", "completions"),
    ("/responses", "responses"),
    ("/messages", "messages"),
)
_SYSTEM = frozenset({"system", "developer"})
# A prompt that continues what the server holds is told apart by what it names there.
_STATE = ("previous_response_id", "conversation")


class Item(NamedTuple):
    """One part of a prompt: who says it, and all of it as text."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt.

    Attributes:
        digest: equal for equal prompts, whatever model or parameters they go with.
        first: tells the first item from others, the same in every run of the program.
        opening: likewise for the first item and what the user first says.
        answers: names of the answers that the prompt repeats as the model's own words.
        calls: marks of tool calls that a task of the prompt repeats.
        asks: what the user said last.
        after_tool: a tool's result came after the model's last words.
        stateful: the server holds the rest of the history.
    """

    kind: Kind
    digest: str
    first: str
    opening: str
    answers: tuple[str, ...]
    calls: tuple[Mark, ...]
    asks: str
    after_tool: bool
    stateful: bool


def kind_of(path: str) -> Kind | None:
    """Return which API a path belongs to, None when it runs no model."""
    return next((kind for ending, kind in _ENDINGS if path.endswith(ending)), None)


def read_prompt(kind: Kind, body: dict[str, Any]) -> Prompt:
    """Read the prompt of a request's body."""
    items = list(_ITEMS[kind](body))
    state = [json.dumps(body[name]) for name in _STATE if body.get(name)]
    whole = "\n".join([kind, *state, *(f"{item.role}:{item.text}" for item in items)])
    spoken = [*state, *(item.text for item in items if item.role == "model")]
    if kind == "completions":
        spoken = [item.text for item in items]
    tasks = [item.text for item in items if item.role in {"system", "user"}]
    users = [item.text for item in items if item.role == "user"]
    last_word = max((i for i, item in enumerate(items) if item.role == "model"), default=-1)
    first = without_marks(items[0].text if items else "")
    return Prompt(
        kind=kind,
        digest=digest(whole),
        first=digest(first),
        opening=digest(first + "\n" + without_marks(users[0] if users else "")),
        answers=tuple(mark.answer for said in spoken for mark in marks_in(said)),
        calls=tuple(m for said in tasks for m in marks_in(said) if m.call is not None),
        asks=users[-1] if users else "",
        after_tool=any(item.role == "tool" for item in items[last_word + 1 :]),
        stateful=bool(state),
    )


def _chat(body: dict[str, Any]) -> Iterator[Item]:
    for message in map(record, sequence(body.get("messages"))):
        role = text(message.get("role"))
        if role in _SYSTEM:
            yield Item("system", _words(message.get("content")))
        elif role == "user":
            yield Item("user", _words(message.get("content")))
        elif role in {"tool", "function"}:
            yield Item("tool", _dumped(message))
        else:
            yield Item("model", _dumped(message))


def _completions(body: dict[str, Any]) -> Iterator[Item]:
    yield Item("user", _words(body.get("prompt")))


def _responses(body: dict[str, Any]) -> Iterator[Item]:
    if body.get("instructions"):
        yield Item("system", _words(body["instructions"]))
    given = body.get("input")
    if isinstance(given, str):
        yield Item("user", given)
    for item in map(record, sequence(given)):
        role = text(item.get("role"))
        if role in _SYSTEM:
            yield Item("system", _words(item.get("content")))
        elif role == "user":
            yield Item("user", _words(item.get("content")))
        elif text(item.get("type")).endswith("_output"):
            yield Item("tool", _dumped(item))
        else:
            yield Item("model", _dumped(item))


def _messages(body: dict[str, Any]) -> Iterator[Item]:
    if body.get("system"):
        yield Item("system", _words(body["system"]))
    for message in map(record, sequence(body.get("messages"))):
        content = message.get("content")
        if message.get("role") != "user":
            yield Item("model", _dumped(content))
            continue
        if isinstance(content, str):
            yield Item("user", content)
        for block in map(record, sequence(content)):
            is_result = block.get("type") == "tool_result"
            yield Item("tool", _dumped(block)) if is_result else Item("user", _words([block]))


def _words(content: Any) -> str:
    """Return the text of a content, and of a part without any all that it holds."""
    if isinstance(content, str):
        return content
    parts = [record(part).get("text") or _dumped(part) for part in sequence(content)]
    return "\n".join(map(str, parts))


def _dumped(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


_ITEMS = {
    "chat": _chat,
    "completions": _completions,
    "responses": _responses,
    "messages": _messages,
}
