"""What went wrong with a call, in one line for a terminal. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from openai import APIStatusError

_LONGEST = 240
# Servers quote what they were sent: keys, and ids of requests and sessions.
_SECRET = re.compile(
    r"\b(?:sk|pk|key|bearer)[-_ ][\w*.-]+"
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
    r"|\b[a-z]+-[0-9a-f]{12,}\b"
    r"|\b(?=\w*\d)(?=\w*[a-z])\w{16,}\b",
    re.IGNORECASE,
)


def failure_text(error: BaseException) -> str:
    """Return an error's class, status and message, cut short, without ids and keys."""
    kind = type(error).__name__
    said = str(error)
    if isinstance(error, APIStatusError):
        kind = f"{kind} {error.status_code}"
        said = _message_in(error.body) or said
    elif error.__cause__ is not None and (why := str(error.__cause__)):
        said = f"{said} ({why})"
    text = _SECRET.sub("…", " ".join(said.split()))
    return f"{kind}: {text[:_LONGEST]}{'…' if len(text) > _LONGEST else ''}"


def _message_in(body: object) -> str | None:
    if not isinstance(body, Mapping):
        return None
    given = cast("Mapping[str, object]", body)
    message = given.get("message", given.get("detail"))
    return message if isinstance(message, str) else _message_in(given.get("error"))
