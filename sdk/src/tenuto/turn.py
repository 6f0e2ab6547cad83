"""What a request body says of its turn: is the prompt new, and what opened it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

_PROMPT_FIELDS = (
    "messages",
    "input",
    "prompt",
    "instructions",
    "previous_response_id",
    "conversation",
)
_TURN_ROUTES = ("/chat/completions", "/completions", "/responses")
_PLAIN_ROUTES = frozenset(_TURN_ROUTES)
# Named here: an `A | B` in a call is built anew each time.
_MAPPINGS = (dict, Mapping)
_LISTS = (list, tuple)
_SCALARS = (str, int, float, bytes, type(None))
_TOOL_RESULTS = frozenset({"tool", "function"})


def is_turn(method: str, url: str) -> bool:
    """Tell whether a request is a model call, so that it can open a turn."""
    if method.upper() != "POST":
        return False
    return url in _PLAIN_ROUTES or url.split("?", 1)[0].endswith(_TURN_ROUTES)


def fingerprint(body: Any) -> int | None:
    """Return a number that two bodies share when they carry the same prompt.

    Process-local (built on `hash`, whose strings are cached): it never travels.
    Model and sampling settings take no part, so a fallback to another model is the
    same turn tried again.

    Returns:
        None when the body carries no prompt. Of raw bytes, their hash.
    """
    if isinstance(body, bytes):
        return hash(body)
    if not is_mapping(body):
        return None
    prompt = [(name, _frozen(body[name])) for name in _PROMPT_FIELDS if name in body]
    return hash(tuple(prompt)) if prompt else None


def phase_of(body: Any, n: int) -> str | None:
    """Return what opened turn `n`, from the last message or input item.

    Returns:
        `start` for turn 0, `tool` after a tool's result, `user` after a user's words,
        None when the body does not say.
    """
    if n == 0:
        return "start"
    last = _last_item(body)
    if isinstance(last, str):
        return "user"
    if not is_mapping(last):
        return None
    if last.get("role") in _TOOL_RESULTS or str(last.get("type", "")).endswith("_output"):
        return "tool"
    return "user" if last.get("role") == "user" else None


def _last_item(body: Any) -> Any:
    items = body.get("messages", body.get("input")) if is_mapping(body) else None
    return items[-1] if _is_list(items) and items else items


def _frozen(value: Any) -> int:
    """Hash a part of a body: in one step of C where it is flat, else part by part."""
    # Objects come first: a long prompt is mostly these.
    if is_mapping(value):
        parts: Iterable[Any] = value.items()
    elif isinstance(value, _SCALARS):
        return hash(value)
    elif _is_list(value):
        parts = value
    else:
        return hash(repr(value))
    try:
        return hash(tuple(parts))
    except TypeError:
        return hash(tuple([_frozen(part) for part in parts]))


def is_mapping(value: Any) -> TypeGuard[Mapping[Any, Any]]:
    """Tell whether a part of a body is a JSON object."""
    return isinstance(value, _MAPPINGS)


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, _LISTS)
