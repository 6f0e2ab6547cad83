"""What operators are told: fixed words with fields, and ids at DEBUG alone.

The words and their fields are the table of docs/operations.md, Events.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re

LOG = logging.getLogger("tenuto_vllm")

_IDS = frozenset({"session", "parent", "run", "token"})
_WORD = re.compile(r"[!#-<>-~]+")
_STANDARD_ERROR = 2


def tell(level: int, event: str, /, **fields: object) -> None:
    """Log an event; it never raises, and costs one look at the level when that is off.

    Args:
        level: of `logging`. An id among the fields is left out above DEBUG.
        event: a fixed word.
        fields: numbers, words, and lists of these.
    """
    if not LOG.isEnabledFor(level):
        return
    # A handler or filter of the server's may raise, and no request may fail by it.
    with contextlib.suppress(Exception):
        if level > logging.DEBUG:
            fields = {name: value for name, value in fields.items() if name not in _IDS}
        said = " ".join(f"{name}={_text(value)}" for name, value in fields.items())
        extra = {"event": event, "fields": fields}
        LOG.log(level, "%s %s", event, said, extra=extra, stacklevel=2)


def set_up(level: str) -> None:
    """Write JSON lines to standard error.

    Args:
        level: `info` or `debug`; nothing is changed for an empty one.
    """
    if not level:
        return
    LOG.setLevel(level.upper())
    # The server's own handlers would tell it a second time.
    LOG.propagate = False
    if not any(isinstance(handler, JsonLines) for handler in LOG.handlers):
        LOG.addHandler(JsonLines())


class JsonLines(logging.Handler):
    """Writes each record as one JSON object and one line.

    It writes to the file descriptor: several processes share it, and some versions of vLLM put
    the name of the process before each line that goes through `sys.stderr`.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or nothing where it cannot be written."""
        with contextlib.suppress(Exception):
            line: dict[str, object] = {
                "time": round(record.created, 3),
                "level": record.levelname.lower(),
                "process": record.process,
            }
            if hasattr(record, "event"):
                line["event"] = vars(record)["event"]
                line = {**vars(record)["fields"], **line}
            else:
                line |= {"event": "message", "message": record.getMessage()}
            os.write(_STANDARD_ERROR, json.dumps(line, default=str).encode() + b"\n")


def _text(value: object) -> str:
    if isinstance(value, str):
        return value if _WORD.fullmatch(value) else json.dumps(value)
    return json.dumps(value, default=str, separators=(",", ":"))
