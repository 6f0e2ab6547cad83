"""Where calls belong of which only the requests are seen."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tenuto.recording.events import Place, asked_of
from tenuto.recording.heard import Heard
from tenuto.recording.placing import Placing
from tenuto.tried import Tried

USER: Any = {"role": "user", "content": "look"}


def place(
    placing: Placing,
    *words: str,
    error: str | None = None,
    at: tuple[float, float] = (0, 1),
    **h: str,
) -> Place:
    body = {"model": "m\ud800", "messages": [{"role": "user", "content": one} for one in words]}
    headers = {name.replace("_", "-"): value for name, value in h.items()}
    request = httpx.Request(
        "POST", "http://h/v1/chat/completions", headers=headers, content=json.dumps(body)
    )
    tried = Tried(request, None)
    tried.start_s, tried.end_s = at
    return placing(tried, body, asked_of(request, body), Heard(error=error))


def test_equal_prompts_are_turns_of_their_own_when_they_were_answered() -> None:
    placing = Placing(b"key")
    places = [place(placing, "vote", error=error) for error in (None, None, "500", "429", None)]
    places.append(place(placing, "vote", "on"))
    assert len({one.session_id for one in places}) == 1
    assert [(one.turn, one.attempt) for one in places] == [
        (0, 0),
        (1, 0),
        (2, 0),
        (2, 1),
        (2, 2),
        (3, 0),
    ]


def test_equal_prompts_of_a_marked_session_without_numbers_are_told_apart_alike() -> None:
    placing = Placing(b"key")
    errors = (None, "500", None, None)
    places = [place(placing, "vote", error=one, x_session_id="session-1") for one in errors]
    assert [(one.turn, one.attempt) for one in places] == [(0, 0), (1, 0), (1, 1), (2, 0)]


def test_sessions_of_another_start_are_others_though_they_begin_with_the_same_prompt() -> None:
    names = {place(Placing(b"key"), "look").session_id for _ in range(5)}
    assert len(names) == 5


def ours(placing: Placing, session: str, turn: str, parent: str = "", **given: Any) -> Place:
    marks = {"x_agent_run_id": "run-00000", "x_session_id": session, "x_agent_turn": turn}
    if parent:
        marks["x_parent_session_id"] = parent
    return place(placing, session, turn, **marks, **given)


def test_our_own_markers_are_written_with_phase_and_the_turn_that_a_child_forked_after() -> None:
    placing = Placing(b"key")
    ours(placing, "parent-00", "n=0, phase=start", at=(0, 1))
    second = ours(placing, "parent-00", "n=1, phase=tool", at=(2, 3))
    # It ends before the child's first call does, and started after it.
    ours(placing, "parent-00", "n=2, phase=tool", at=(5, 6))
    child = ours(placing, "child-000", "n=0, fork=inherit", "parent-00", at=(4, 9))
    later = ours(placing, "child-000", "n=1", "parent-00", at=(10, 11))
    fresh = ours(placing, "child-001", "n=0", "parent-00", at=(7, 8))
    assert second.phase == "tool"
    assert child.fork is not None
    assert (child.fork.session_id, child.fork.turn, child.fork.inherits) == ("parent-00", 1, True)
    assert later.fork is None
    assert fresh.fork is not None
    assert (fresh.fork.turn, fresh.fork.inherits) == (2, False)


def test_a_child_whose_parent_made_no_call_began_before_it_and_a_late_one_says_nothing() -> None:
    placing = Placing(b"key")
    first = ours(placing, "child-000", "n=0", "parent-00")
    assert first.fork is not None
    assert (first.fork.session_id, first.fork.turn) == ("parent-00", None)
    assert ours(placing, "child-001", "n=3", "parent-00").fork is None
