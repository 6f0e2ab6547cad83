"""What a request body says of its turn: is the prompt new, and what opened it. Pure."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

_TURN_ROUTES = ("/chat/completions", "/completions", "/responses")
_PLAIN_ROUTES = frozenset(_TURN_ROUTES)
# Named here: an `A | B` in a call is built anew each time.
_MAPPINGS = (dict, Mapping)
_LISTS = (list, tuple)
_TOOL_RESULTS = frozenset({"tool", "function"})


def is_turn(method: str, url: str) -> bool:
    """Tell whether a request is a model call, so that it can open a turn."""
    if method.upper() != "POST":
        return False
    return url in _PLAIN_ROUTES or url.split("?", 1)[0].endswith(_TURN_ROUTES)


def fingerprint(content: bytes, model: Any) -> int:
    """Return a number that two bodies share when they carry the same prompt.

    Process-local (built on `hash`): it never travels. The model's name takes no part, so
    a fallback to another model is the same turn tried again.

    Args:
        content: the body as it is sent.
        model: its `model` field, as openai writes it (compact JSON, not escaped to ASCII);
            anything but a string is ignored.
    """
    if isinstance(model, str):
        content = content.replace(_model_field(model), b"", 1)
    return hash(content)


@functools.lru_cache(maxsize=256)
def _model_field(model: str) -> bytes:
    return f'"model":{json.dumps(model, ensure_ascii=False)}'.encode("utf-8", "surrogatepass")


def model_of(body: Any) -> Any:
    """Return a body's `model` field, None when it has none."""
    return body.get("model") if _is_mapping(body) else None


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
    if not _is_mapping(last):
        return None
    if last.get("role") in _TOOL_RESULTS or str(last.get("type", "")).endswith("_output"):
        return "tool"
    return "user" if last.get("role") == "user" else None


def _last_item(body: Any) -> Any:
    items = body.get("messages", body.get("input")) if _is_mapping(body) else None
    return items[-1] if _is_list(items) and items else items


def _is_mapping(value: Any) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(value, _MAPPINGS)


def _is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, _LISTS)
