"""The text of a call as it is written: redacted, and of characters that a file can hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenuto.shape import is_list, is_object
from tenuto.trace import CallEvent, line_of

Redact = Callable[[str], str]


def redacted(value: Any, redact: Redact) -> Any:
    """Return JSON with each string, name of a field and number as `redact` returns it.

    A number stays one where `redact` leaves its digits as they are.
    """
    if isinstance(value, str):
        return str(redact(value))
    if is_object(value):
        return {str(redact(str(k))): redacted(v, redact) for k, v in value.items()}
    if is_list(value):
        return [redacted(one, redact) for one in value]
    if value is None or isinstance(value, bool):
        return value
    digits = str(value)
    said = str(redact(digits))
    return value if said == digits else said


def written(event: CallEvent) -> bytes:
    """Return a call's line; what cannot be written of its text is left out.

    JSON may hold halves of a character, which no file can: each becomes U+FFFD.
    """
    try:
        return line_of(event)
    except Exception:
        bare = event.model_copy(update={"messages": None, "answer": None})
    try:
        return line_of(CallEvent.model_validate(_whole(event.model_dump())))
    except Exception:
        return line_of(CallEvent.model_validate(_whole(bare.model_dump())))


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if is_object(value):
        return {_whole(k): _whole(v) for k, v in value.items()}
    return [_whole(one) for one in value] if is_list(value) else value
