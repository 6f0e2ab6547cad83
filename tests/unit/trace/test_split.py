from __future__ import annotations

import pytest

from tenuto.trace import Session, Trace, TraceError, Turn, split
from tenuto.trace.formats.weka_write import weka_from_trace

TURNS = (Turn(((1, 2),), 130, 3, 0.5, 1.0), Turn(((1, 3),), 200, 3, 9.0, 9.5))
DEEP = Trace(
    "r",
    64,
    (
        Session("a", "main", TURNS),
        Session("b", "x", TURNS[:1], "a", 0, 1, "inherit"),
        Session("c", "y", TURNS, "b", 0, None, "inherit"),
        Session("d", "z", TURNS[:1], "c", 0, 1),
        Session("e", "main", TURNS[:1]),
    ),
    source="tenuto",
    extra={"x": 1},
)


def test_each_part_is_one_root_with_direct_children_and_no_call_is_lost() -> None:
    parts = list(split(DEEP))
    assert [part.id for part in parts] == ["r/a", "r/c", "r/e"]
    assert [[one.label for one in part.sessions] for part in parts] == [
        ["a", "b"],
        ["c", "d"],
        ["e"],
    ]
    assert sum(part.requests for part in parts) == DEEP.requests
    assert parts[0].sessions == DEEP.sessions[:2]
    root = parts[1].sessions[0]
    assert (root.parent, root.spawned_after, root.fork) == (None, None, "fresh")
    assert root.turns == DEEP.sessions[2].turns
    assert parts[1].sessions[1] == DEEP.sessions[3]


def test_weka_says_every_part_and_names_the_way_when_it_cannot_say_the_whole() -> None:
    with pytest.raises(TraceError, match="tenuto trace convert --split"):
        weka_from_trace(DEEP)
    assert [len(weka_from_trace(part)["requests"]) for part in split(DEEP)] == [3, 3, 1]


def test_a_trace_that_is_one_part_stays_as_it_is() -> None:
    one = Trace("r", 64, DEEP.sessions[:2], extra={"x": 1})
    assert list(split(one)) == [one]
