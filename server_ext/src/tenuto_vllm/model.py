"""Frozen values that cross rooms: what placement is told and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Why = Literal["home", "first", "parent", "hash", "moved", "auxiliary", "unkeyed"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one request goes.

    Attributes:
        rank: data-parallel rank, 0 <= rank < number of ranks.
        why: what decided it; see docs/protocol.md, `X-Agent-Served`.
    """

    rank: int
    why: Why


class EngineView(Protocol):
    """What the middleware may ask of the engine it stands in front of.

    Every answer is read from the running engine at each call, so that elastic
    scaling and restarts need no setting of ours.
    """

    def ranks(self) -> int:
        """Return how many data-parallel ranks this API process can address, >= 1."""
        ...

    def instance(self) -> str:
        """Return an opaque name, the same in every API process of one server.

        It is new after a restart: a token that carries another name is stale.
        """
        ...

    def capacity(self) -> int | None:
        """Return the tokens that each rank's cache holds; None where that is not known."""
        ...

    def dead(self) -> frozenset[int]:
        """Return the ranks that the engine knows to be unfit to serve."""
        ...

    def loads(self) -> Sequence[float]:
        """Return the load of each rank in requests, length `ranks()`, rank order."""
        ...
