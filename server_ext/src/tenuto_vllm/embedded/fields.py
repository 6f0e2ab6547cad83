"""Reading single fields of a JSON body, each with a refusal that names the field. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast

from tenuto_vllm.embedded.errors import RequestError


def read_body(raw: bytes) -> Mapping[str, Any]:
    """Return a request's body as a JSON object.

    Raises:
        RequestError: it is not JSON, is nested too deeply to read, or is no object.
    """
    try:
        body: object = json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"The body is not valid JSON: {error}") from error
    return as_object(body, "body")


def as_object(value: object, name: str) -> Mapping[str, Any]:
    """Return a value that must be a JSON object; `name` is its field."""
    if not isinstance(value, Mapping):
        _refuse(name, "an object", value)
    return cast("Mapping[str, Any]", value)


def as_list(value: object, name: str) -> Sequence[Any]:
    """Return a value that must be a JSON array."""
    if not isinstance(value, list):
        _refuse(name, "an array", value)
    return cast("Sequence[Any]", value)


def as_text(value: object, name: str) -> str:
    """Return a value that must be a string."""
    if not isinstance(value, str):
        _refuse(name, "a string", value)
    return value


def flag(body: Mapping[str, Any], name: str) -> bool:
    """Return an optional boolean field; absent and null are False."""
    value = body.get(name)
    if not isinstance(value, bool | None):
        _refuse(name, "true or false", value)
    return bool(value)


def positive(body: Mapping[str, Any], *names: str) -> int | None:
    """Return the first of some optional integer fields that is set, at least 1."""
    for name in names:
        value = body.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            _refuse(name, "an integer of at least 1", value)
        return value
    return None


def _refuse(name: str, wanted: str, value: object) -> NoReturn:
    # The value's type and not the value: it may be a whole chat.
    shown = value if isinstance(value, bool | int | float | None) else type(value).__name__
    raise RequestError(f"{name} must be {wanted}, not {shown}.", param=name)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
