"""Headers of one request: what is left out, and what an answer may give back."""

from __future__ import annotations

import pytest

from tenuto import _wire, dialects
from tenuto.dialects.headers import echoes, fixed, heard, varying

SESSION = "s" * 32


def sent(dialect: str, markers: _wire.Markers) -> dict[str, str]:
    return {n.decode(): v.decode() for n, _, v in fixed(dialects.named(dialect), markers)}


def test_a_root_has_no_parent_and_a_parent_that_is_the_session_is_none() -> None:
    assert sent("generic", _wire.Markers(SESSION)).keys() == {"X-Session-ID", "X-Session-Affinity"}
    same = _wire.Markers(SESSION, SESSION)
    assert sent("generic", same).keys() == {"X-Session-ID", "X-Session-Affinity"}


@pytest.mark.parametrize("bad", ["short", "x" * 65, "has space" * 2, "abcdefgh_t1", "é" * 8, ""])
def test_what_is_no_id_is_never_sent(bad: str) -> None:
    assert sent("vllm", _wire.Markers(bad, SESSION, SESSION)) == {}
    assert sent("aibrix:session-affinity", _wire.Markers(bad)) == {}
    assert sent("vllm", _wire.Markers(SESSION, bad, bad)).keys() == {"X-Session-ID"}


@pytest.mark.parametrize(
    ("dialect", "prio", "value"),
    [
        ("vllm", 3, "-3"),
        ("vllm", -8, "8"),
        ("vllm", 0, "0"),
        ("dynamo", 3, "3"),
        ("smg", 8, "interactive"),
        ("smg", 0, "default"),
        ("smg", -1, "bulk"),
    ],
)
def test_a_priority_is_said_in_the_servers_own_sense(dialect: str, prio: int, value: str) -> None:
    [(_, _, said)] = varying(dialects.named(dialect), b"", prio)
    assert said.decode() == value


def test_a_turn_a_priority_and_an_end_are_said_only_when_there_are_any() -> None:
    for row in dialects.DIALECTS.values():
        assert varying(row) == []
    [(name, _, value)] = varying(dialects.named("dynamo"), is_final=True)
    assert (name, value) == (b"X-Dynamo-Session-Final", b"true")


def test_only_a_declared_header_of_an_answer_is_kept_and_only_what_was_kept_goes_back() -> None:
    row = dialects.named("llm-d")
    answer = {b"x-session-token": "bnMvcG9k", b"x-session-id": "theirs", b"x-agent-affinity": "i.1"}
    kept = dict(heard(row, answer.get))
    assert kept == {"x-session-token": "bnMvcG9k"}
    assert echoes(row, kept.get) == [(b"x-session-token", b"x-session-token", b"bnMvcG9k")]
    assert echoes(row, {}.get) == []


@pytest.mark.parametrize("value", ["", " ", "a b", "é", "x" * 513, "a\r\nX-Evil: 1"])
def test_what_an_answer_gives_is_kept_only_when_it_can_be_sent(value: str) -> None:
    assert heard(dialects.VLLM, lambda _: value) == []


def test_a_callers_own_session_header_is_known_in_every_dialect() -> None:
    for row in dialects.DIALECTS.values():
        carried = {name.lower().encode() for name, marker in row.carries if marker == "session"}
        assert row.identity == carried
        assert row.identity <= row.sends
