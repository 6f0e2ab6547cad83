"""What a request asks for, in any of the shapes that model servers take. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from tenuto.shape import is_list, is_object

Kind = Literal["chat", "completions", "responses", "messages"]

# As the last parts of a path. An assistant's threads have `messages` too, which run no model.
_ROUTES: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (re.compile(r".*/chat/completions"), "chat"),
    (re.compile(r".*/completions"), "completions"),
    (re.compile(r".*/responses"), "responses"),
    (re.compile(r"(?:.*/v[0-9][^/]*)?/messages"), "messages"),
)
# What is longer is no name.
_NAME_LENGTH = 256
# A text is cut in pieces, so that one that goes on from another shares its start.
_PIECE = 1024


class Result(NamedTuple):
    """A tool's result in a prompt."""

    call_id: str
    name: str
    tool_class: str | None
    output_bytes: int
    is_error: bool
    is_last: bool


class Asked(NamedTuple):
    """A request's body.

    Attributes:
        model: as requested.
        items: canonical bytes of the tools, the instructions and each message, in order.
        head: how many of them are tools and instructions.
        results: of tools, in order; `is_last` of those that no model has answered yet.
        messages: the prompt itself, instructions first.
        after: id of the response or the conversation that the prompt goes on from.
        is_partial: what it goes on from is not among the items.
    """

    model: str | None = None
    items: Sequence[bytes] = ()
    head: int = 0
    results: Sequence[Result] = ()
    messages: Sequence[Any] = ()
    after: str | None = None
    is_partial: bool = False


def kind_of(path: str) -> Kind | None:
    """Return which API a path belongs to, None when it runs no model."""
    return next((kind for route, kind in _ROUTES if route.fullmatch(path)), None)


def read_body(kind: Kind, body: Any) -> Asked:
    """Read a request's body; of what is not there, nothing is said."""
    if not is_object(body):
        return Asked()
    messages: list[Any] = []
    head = body.get("system") if kind == "messages" else body.get("instructions")
    if head:
        messages.append({"role": "system", "content": head})
    given = body.get({"responses": "input", "completions": "prompt"}.get(kind, "messages"))
    items = [canonical(body["tools"])] if body.get("tools") else []
    items += map(canonical, messages)
    head_length = len(items)
    if kind == "completions" or isinstance(given, str):
        text = given if isinstance(given, str) else canonical(given).decode()
        pieces = (text[at : at + _PIECE] for at in range(0, len(text), _PIECE))
        items += (piece.encode("utf-8", "surrogatepass") for piece in pieces)
        messages.append({"role": "user", "content": given})
    elif is_list(given):
        items += map(canonical, given)
        messages += given
    after = _after(body) if kind == "responses" else None
    return Asked(
        _name(body.get("model")) or None,
        items,
        head_length,
        _results(messages),
        messages,
        after,
        after is not None,
    )


def _name(value: Any) -> str:
    return value[:_NAME_LENGTH] if isinstance(value, str) else ""


def _after(body: Any) -> str | None:
    before = body.get("previous_response_id") or body.get("conversation")
    if is_object(before):
        before = before.get("id")
    return str(before) if before else None


def canonical(value: Any) -> bytes:
    """Return bytes that equal JSON values share; marks for caching, which move, are left out."""
    text = json.dumps(_unmarked(value), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _unmarked(value: Any) -> Any:
    if is_object(value):
        return {k: _unmarked(v) for k, v in value.items() if k != "cache_control"}
    return [_unmarked(one) for one in value] if is_list(value) else value


def _results(messages: Sequence[Any]) -> list[Result]:
    names: dict[str, tuple[str, str | None]] = {}
    found: list[Result] = []
    last_word = 0
    for message in messages:
        if not is_object(message):
            continue
        for part in _parts(message):
            kind = _name(part.get("type"))
            if kind == "tool_use" or kind.endswith("_call"):
                call_id = _name(part.get("call_id") or part.get("id"))
                names[call_id] = _named(part, kind)
                last_word = len(found)
            elif (result := _result(part, kind, names)) is not None:
                found.append(result)
        calls = message.get("tool_calls")
        for call in calls if is_list(calls) else ():
            if is_object(call):
                names[_name(call.get("id"))] = _named(call, _name(call.get("type")) or "function")
        if message.get("role") == "assistant":
            last_word = len(found)
    return [one._replace(is_last=at >= last_word) for at, one in enumerate(found)]


def _parts(message: Any) -> Iterator[Any]:
    """Yield what may be a tool's call or result: a message, and the parts of its content."""
    yield message
    content = message.get("content")
    if is_list(content):
        yield from (part for part in content if is_object(part))


def _named(call: Any, kind: str) -> tuple[str, str | None]:
    inner = call.get(kind)
    name = call.get("name") or (inner.get("name") if is_object(inner) else "")
    known = {"tool_use": "function"}.get(kind, kind.removesuffix("_tool_call"))
    return _name(name), known.removesuffix("_call") or None


def _result(part: Any, kind: str, names: dict[str, tuple[str, str | None]]) -> Result | None:
    if part.get("role") in {"tool", "function"}:
        call_id, output = part.get("tool_call_id"), part.get("content")
    elif kind == "tool_result":
        call_id, output = part.get("tool_use_id"), part.get("content")
    elif kind.endswith("_call_output"):
        call_id, output = part.get("call_id"), part.get("output")
    else:
        return None
    call_id = _name(call_id)
    name, tool_class = names.get(call_id, (_name(part.get("name")), None))
    raw = output.encode("utf-8", "surrogatepass") if isinstance(output, str) else canonical(output)
    return Result(call_id, name, tool_class, len(raw), part.get("is_error") is True, False)
