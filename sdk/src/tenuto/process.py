"""What all sessions and clients of one process share, and nothing else.

A run entered again by its name goes on where it was, whichever client and scope it is
entered with; agents' waits are learned from all their sessions; news of many sessions to one
server travels together. All of it is bounded, and a forked child starts without any.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections import Counter

from tenuto.background import Background
from tenuto.news import News
from tenuto.servers import Servers
from tenuto.sessions import SessionStore
from tenuto.settings import Settings
from tenuto.waits import Waits

SESSIONS = SessionStore()
WAITS = Waits()
SERVERS = Servers()
NEWS = News()
BACKGROUND = Background(NEWS.send)
# What was passed over, by fixed words: no id is ever one.
PASSED_OVER: Counter[str] = Counter()

# Body fields that a server has refused, by the dialect's name.
FORGONE: dict[str, frozenset[str]] = {}
_NONE: frozenset[str] = frozenset()

_log = logging.getLogger("tenuto")

for _shared in (WAITS, SERVERS, NEWS):
    os.register_at_fork(after_in_child=_shared.forget)


@functools.cache
def settings() -> Settings:
    """Return the process's settings, read from the environment once."""
    return Settings.from_env(os.environ)


def pass_over(step: str) -> None:
    """Count an error of ours in `step`; raise it where the settings say so.

    Raises:
        Exception: the one being handled, under `TENUTO_STRICT`.
    """
    PASSED_OVER[step] += 1
    if settings().strict:
        raise  # noqa: PLE0704 - called while an exception is handled
    # A handler or filter of the program's may raise, and no request may fail by it.
    with contextlib.suppress(Exception):
        _log.debug("tenuto could not %s a request; it goes on", step, exc_info=True)


def forgone(dialect: str) -> frozenset[str]:
    """Return the body fields of a dialect that a server has refused."""
    return FORGONE.get(dialect, _NONE)


def forgo(dialect: str, fields: frozenset[str]) -> None:
    """Send these body fields of a dialect no more, and say so."""
    FORGONE[dialect] = forgone(dialect) | fields
    names = ", ".join(sorted(fields))
    warn_once(
        f"refused {dialect} {names}",
        f"a server refused the body field {names} of dialect {dialect}: the call was made again"
        " without it, and this process sends it no more",
    )


def warn_once(what: str, message: str) -> None:
    """Count something the user should know, and log it the first time."""
    PASSED_OVER[what] += 1
    if PASSED_OVER[what] == 1:
        with contextlib.suppress(Exception):
            _log.warning(message)
