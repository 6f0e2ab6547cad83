"""JSON as strangers write it: too deep, too long, with half a character. Pure."""

from __future__ import annotations

import json
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

_T = TypeVar("_T")
# A number with more digits is beyond what any field can be.
_DIGITS = 30


class NotJsonError(ValueError):
    """A text is not JSON, or is nested too deep to be read."""


def parsed(data: bytes | str) -> Any:
    """Return what a text says, each half of a surrogate pair without the other as U+FFFD.

    Raises:
        NotJsonError: when it is not JSON, or nested too deep.
    """
    try:
        value = _loaded(data)
        return _mended(value) if _has_surrogates(data) else value
    except RecursionError as error:
        message = "nested too deep"
        raise NotJsonError(message) from error
    except ValueError as error:
        message = f"not JSON: {error}"
        raise NotJsonError(message) from error


def is_json(data: bytes) -> bool:
    """Whether a text is JSON that can be read."""
    try:
        _loaded(data)
    except (ValueError, RecursionError):
        return False
    return True


def validated(adapter: TypeAdapter[_T], data: bytes) -> _T:
    """Return JSON as a checked value.

    Raises:
        ValidationError: when it is not JSON, or another value.
    """
    try:
        return adapter.validate_json(data)
    except ValidationError:
        # A program that cuts a text in the middle of a character writes half a pair.
        if not _has_surrogates(data):
            raise
        try:
            value = parsed(data)
        except NotJsonError:
            value = None
        if value is None:
            raise
        return adapter.validate_python(value)


def _loaded(data: bytes | str) -> Any:
    try:
        return json.loads(data)
    except json.JSONDecodeError:
        raise
    except ValueError:
        # Python refuses a number of thousands of digits; it is one bad value, not a bad line.
        return json.loads(data, parse_int=_whole)


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= _DIGITS else float(digits)


def _has_surrogates(data: bytes | str) -> bool:
    if isinstance(data, bytes):
        return rb"\ud" in data or rb"\uD" in data
    return r"\ud" in data or r"\uD" in data


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_mended(one) for one in cast("list[Any]", value)]
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value).items()
        return {_mended(key): _mended(one) for key, one in pairs}
    return value
