"""Where one request goes, and what is expected of it there."""

from __future__ import annotations

from typing import NamedTuple

from tenuto_vllm.model import Placement


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
