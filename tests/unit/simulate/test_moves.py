"""What a simulated client says of what a turn keeps, and how moves are counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tenuto.replay.schedule import CallRef
from tenuto.simulate import Setup, outcome_of, simulate
from tenuto.simulate.calls import call_of
from tenuto.trace import Session, Trace, Turn

PROMPTS = [((1, 10),), ((1, 20),), ((1, 3), (100, 5)), ((1, 3), (100, 5), (200, 2))]
TURNS = tuple(
    Turn(blocks, 16 * sum(count for _, count in blocks) + 3, 5, 40.0 * n, 40.0 * n + 1.0)
    for n, blocks in enumerate(PROMPTS)
)
TRACE = Trace("a", 16, (Session("main", "main", TURNS),))


def test_a_turn_that_does_not_go_on_from_the_last_says_what_it_keeps() -> None:
    keeps = [
        call_of([TRACE], CallRef(0, 0, n), Setup(), np.empty(0, np.int64), 16).keep
        for n in range(4)
    ]
    assert keeps == [None, None, 3 * 16, None]


@pytest.mark.parametrize(
    ("placement", "moves", "most"), [("round-robin", 3, 2), ("session-sticky", 0, 0)]
)
def test_moves_are_counted_by_session_and_those_within_a_minute(
    placement: str, moves: int, most: int
) -> None:
    setup = Setup(ranks=3, tokens_per_rank=1_000, placement=placement)
    outcome = outcome_of(simulate([TRACE], setup))
    assert (outcome.moves, outcome.most_moves) == (moves, most)
    both = outcome_of(simulate([TRACE, replace(TRACE, id="b")], setup))
    assert both.moves == 2 * moves
