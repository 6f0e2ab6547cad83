"""Where one request goes, and what is expected of it there."""

from __future__ import annotations

from typing import NamedTuple

from tenuto_vllm.asgi.types import Scope
from tenuto_vllm.model import Placement

_DIGITS = 13


class Visit(NamedTuple):
    """One request on its way to a rank.

    Attributes:
        placement: its rank.
        token: that it is answered with; None where it leaves no home.
        session: whose turn it is; empty without a session.
        turn: index of the turn.
        begun_s: when it was placed.
        held: tokens of its context that the rank most likely has.
        expected: tokens that the rank has most likely to compute.
    """

    placement: Placement
    token: str | None
    session: str
    turn: int | None
    begun_s: float
    held: int
    expected: int


def passing(rank: int, begun_s: float) -> Visit:
    """Return the visit of a request in no session."""
    return Visit(Placement(rank, "unkeyed"), None, "", None, begun_s, 0, 0)


def asked_tokens(scope: Scope) -> int:
    """Guess the length of a prompt of which nothing is known: four bytes are a token."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) // 4 if value.isdigit() and len(value) < _DIGITS else 0
    return 0
