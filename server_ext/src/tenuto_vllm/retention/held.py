"""What a retention policy knows of free blocks that can still be found."""

from __future__ import annotations

from typing import Literal, NamedTuple

Wait = Literal["tool", "user", "unknown"]
"""What ends the wait after a turn, as its finish reason tells."""


class Held(NamedTuple):
    """Blocks that one request of a session has given back together.

    Attributes:
        session: whose they are.
        released_s: when they were given back.
        blocks: how many of them can still be found.
        was_hit: whether the request found them in the cache, rather than computed them.
        wait: what ends the wait after the turn.
        is_final: the session has said that it is over.
        is_superseded: a later turn of the session has given back blocks and did not use these.
        expected_s: when the client expects the next turn; None when it said nothing.
        next_s: when they are really used next, `inf` for never; for oracles alone.
    """

    session: str
    released_s: float
    blocks: int = 0
    was_hit: bool = False
    wait: Wait = "unknown"
    is_final: bool = False
    is_superseded: bool = False
    expected_s: float | None = None
    next_s: float = float("inf")
