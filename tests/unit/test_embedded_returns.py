"""What a rank's policy is told of the waits of its sessions."""

from __future__ import annotations

import numpy as np
import pytest

from tenuto_vllm.embedded import returns as module
from tenuto_vllm.embedded.core import Call, Core
from tenuto_vllm.embedded.pool import Table
from tenuto_vllm.embedded.returns import Returns
from tenuto_vllm.retention import RETENTIONS, Expectation, Wait

TABLE = Table(np.arange(4), 0, 2, np.arange(0), 4)


def call(session: str = "s", **said: object) -> Call:
    return Call(np.arange(2), 9, 1, session=session, run="r", wait="tool", **said)  # type: ignore[arg-type]


def expected(returns: Returns, now_s: float, one: Call) -> Expectation | None:
    returns.began(one, now_s)
    ((_, held),) = returns.ended(one, TABLE, now_s)
    return held.expected


def test_a_wait_is_measured_from_the_end_of_a_turn_to_the_begin_of_the_next() -> None:
    returns = Returns(RETENTIONS["expected-return"])
    for turn in range(9):
        said = expected(returns, 60.0 * turn, call())
    assert said is not None
    assert said.wait_s == pytest.approx(60.0, rel=0.2)


def test_a_gap_is_heard_by_the_policy_that_hears_gaps_and_by_no_other() -> None:
    heard, unheard = (
        expected(Returns(RETENTIONS[name]), 0.0, call(gap_s=90.0))
        for name in ("hinted", "expected-return")
    )
    assert heard is not None
    assert unheard == expected(Returns(RETENTIONS["hinted"]), 0.0, call())
    assert heard.wait_s > 30.0


@pytest.mark.parametrize("name", ["lru", "slru", "belady", "drop-final"])
def test_who_does_not_ask_for_waits_learns_none(name: str) -> None:
    returns = Returns(RETENTIONS[name])
    returns.began(call(), 0.0)
    assert all(held.expected is None for _, held in returns.ended(call(), TABLE, 1.0))
    assert not returns._away


def test_what_is_remembered_has_a_bound_and_a_final_turn_leaves_nothing(monkeypatch) -> None:
    monkeypatch.setattr(module, "_MOST", 10)
    returns = Returns(RETENTIONS["hinted"])
    for number in range(50):
        one = Call(np.arange(2), 9, 1, session=f"s{number}", run=f"r{number}")
        expected(returns, float(number), one)
    assert (len(returns._away), len(returns._born_s)) == (10, 10)
    for number in range(40, 50):
        last = Call(np.arange(2), 9, 1, session=f"s{number}", run="r", is_final=True)
        assert expected(returns, 99.0, last) is None
    assert not returns._away
    assert len(returns._waits) == 0


def test_a_call_that_was_taken_back_in_line_gives_its_sessions_blocks_no_more_protection() -> None:
    core = Core(1, 4, 4, retention=RETENTIONS["expected-return"])

    def asked(key: int, session: str, wait: Wait = "unknown") -> Call:
        return Call(np.array([key]), 5, 1, session=session, wait=wait)

    def played(one: Call, now_s: float) -> int:
        ticket = core.submit(one, now_s)
        while core.next_s is not None:
            core.advance(core.next_s)
        return ticket.cached_tokens

    played(asked(0, "person", "user"), 0.0)
    played(asked(1, "tool", "tool"), 1.0)
    # Prefill is one at a time, so that the next waits in line.
    before = core.submit(Call(np.arange(0), 1, 1), 2.0)
    waiting = core.submit(asked(0, "person", "user"), 2.0)
    assert waiting.admitted_s is None
    core.cancel(waiting, 2.0)
    core.cancel(before, 2.0)
    played(asked(2, "other"), 3.0)
    assert core.ranks[0].pool.holds(np.array([0, 1])).tolist() == [False, True]
