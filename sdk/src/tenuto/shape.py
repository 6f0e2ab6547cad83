"""What kind of JSON value is here: checks that a type checker understands. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

# Named here: an `A | B` in a call is built anew each time.
_MAPPINGS = (dict, Mapping)
_LISTS = (list, tuple)


def is_object(value: Any) -> TypeGuard[Mapping[Any, Any]]:
    """Tell whether a value is a JSON object."""
    return isinstance(value, _MAPPINGS)


def is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    """Tell whether a value is a JSON array."""
    return isinstance(value, _LISTS)
