"""What a retention policy knows of free blocks that can still be found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from tenuto_vllm.retention.waits import Expectation

Wait = Literal["tool", "user", "unknown"]
"""What ends the wait after a turn, as its finish reason tells."""


class Held(NamedTuple):
    """Blocks that one request of a session has given back together.

    Attributes:
        session: whose they are.
        released_s: when they were given back.
        was_hit: whether the request found them in the cache, rather than computed them.
        wait: what ends the wait after the turn.
        is_final: the session has said that it is over.
        is_superseded: a later turn of the session has not used these.
        is_active: the session's next request waits for its turn.
        expected: of the wait; None where nobody has learnt anything.
        born_s: when its run began.
        next_s: when they are really used next, `inf` for never; for oracles alone.
    """

    session: str
    released_s: float
    was_hit: bool = False
    wait: Wait = "unknown"
    is_final: bool = False
    is_superseded: bool = False
    is_active: bool = False
    expected: Expectation | None = None
    born_s: float = 0.0
    next_s: float = float("inf")
