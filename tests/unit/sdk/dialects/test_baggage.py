"""Markers in W3C baggage: appended to the caller's, never instead of it."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto import _wire
from tenuto.dialects.baggage import with_markers, without_markers

SAID = _wire.Markers("s" * 32, "p" * 32, "r" * 32, affinity='i.1"\\;,')
TURN = 'n=7, attempt=1, phase=tool, drop="dddddddd eeeeeeee"'
DATA = json.loads((Path(__file__).parent / "vectors.json").read_text("utf-8"))
MEMBERS = st.lists(
    st.from_regex(r"[a-z]{1,8}=[!#-+\--:<-\[\]-~]{0,12}(;[a-z]{1,4}=x)?", fullmatch=True)
)


def read(value: str) -> dict[str, str]:
    members = (member.split(";")[0].partition("=") for member in value.split(","))
    return {key.strip(): unquote(text) for key, _, text in members}


def test_the_golden_value() -> None:
    said = DATA["given"]
    markers = _wire.Markers(
        said["session"], said["parent"], said["run"], affinity=said["answer"]["X-Agent-Affinity"]
    )
    for vector in DATA["vectors"]:
        if "baggage" in vector:
            assert with_markers("theirs=1", markers, said["turn"]) == vector["baggage"]


def test_values_come_back_whatever_is_in_them() -> None:
    value = with_markers("", SAID, TURN)
    assert value is not None
    assert read(value) == {
        "session.id": SAID.session,
        "tenuto.parent": SAID.parent,
        "tenuto.run": SAID.run,
        "tenuto.turn": TURN,
        "tenuto.affinity": SAID.affinity,
    }


@given(MEMBERS, st.sampled_from([",", ", ", " ,"]))
def test_the_callers_members_stay_and_come_back_alone(members: list[str], comma: str) -> None:
    existing = comma.join(members)
    value = with_markers(existing, SAID, TURN)
    if value is None:
        assert len(members) > 59
        return
    assert value.startswith(existing)
    assert without_markers(value) == existing
    assert all(0x20 <= ord(char) < 0x7F for char in value)


@pytest.mark.parametrize("existing", ["session.id=mine", "a=1, session.id = x", "tenuto.turn=n=1"])
def test_a_caller_that_names_a_session_is_left_alone(existing: str) -> None:
    assert with_markers(existing, SAID, TURN) is None


@pytest.mark.parametrize("existing", [",".join(f"k{i}=v" for i in range(60)), "k=" + "v" * 8000])
def test_what_everybody_must_let_through_is_not_exceeded(existing: str) -> None:
    assert with_markers(existing, SAID, TURN) is None
