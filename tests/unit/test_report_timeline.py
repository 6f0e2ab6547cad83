from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.report import Side, timeline_svg
from tenuto.report.colour import colour_of, ink_on
from tenuto.report.lanes import codes, lanes, letters, moves
from tenuto.results import TurnResult

TURN = TurnResult("w", "s", "planner", 0, 0, 100, 40, 8, 1.0, 1.0, 1.25, 2.0)
SVG = "{http://www.w3.org/2000/svg}"


@st.composite
def results(draw: st.DrawFn) -> list[TurnResult]:
    made = []
    for _ in range(draw(st.integers(0, 12))):
        start_s = draw(st.integers(0, 30))
        made.append(
            replace(
                TURN,
                session=draw(st.sampled_from(["a", "b", "<&>"])),
                agent=draw(st.sampled_from(["planner", "Plan", "é", ""])),
                turn=draw(st.integers(0, 4)),
                rank=draw(st.sampled_from([0, 1, None])),
                cached_tokens=draw(st.integers(0, 100)),
                start_s=start_s,
                first_token_s=start_s,
                end_s=start_s + draw(st.integers(0, 9)),
            )
        )
    return made


@given(results())
def test_no_two_boxes_of_a_row_overlap_and_none_is_lost(turns: list[TurnResult]) -> None:
    packed = lanes(turns, ranks=2)
    assert [lane.rank for lane in packed][:2] == [0, 1]
    for lane in packed:
        for row in lane.rows:
            assert all(turn.rank == lane.rank for turn in row)
            assert all(row[at].end_s <= row[at + 1].start_s for at in range(len(row) - 1))
    placed = [turn for lane in packed for row in lane.rows for turn in row]
    assert sorted(map(repr, placed)) == sorted(map(repr, turns))


@given(results(), results())
def test_the_picture_is_well_formed_and_has_a_box_for_each_turn(
    above: list[TurnResult], below: list[TurnResult]
) -> None:
    text = timeline_svg(
        [Side("without", above), Side("with", below)], ranks=2, title="<t>", note="a & b"
    )
    root = ET.fromstring(text)
    boxes = [group.find(f"{SVG}rect") for group in root.iter(f"{SVG}g")]
    assert len(boxes) == len(above) + len(below)
    width = float(root.attrib["width"])
    for box in boxes:
        assert box is not None
        assert 0 <= float(box.attrib["x"]) <= width
        assert float(box.attrib["width"]) >= 2


def test_a_move_is_a_change_of_rank_between_following_turns_of_a_session() -> None:
    ranks = [0, 0, 1, 1, 0]
    turns = [replace(TURN, turn=turn, rank=rank) for turn, rank in enumerate(ranks)]
    other = replace(TURN, session="other", rank=1)
    assert [(before.turn, after.turn) for before, after in moves([other, *reversed(turns)])] == [
        (1, 2),
        (3, 4),
    ]


def test_agents_take_a_letter_of_their_name_that_is_still_free() -> None:
    turns = [replace(TURN, agent=name) for name in ("planner", "Plan", "planner", "pl", "42")]
    assert letters(turns) == {"planner": "P", "Plan": "L", "pl": "A", "42": "B"}


def test_sessions_of_one_agent_are_numbered_and_a_single_one_is_not() -> None:
    turns = [
        replace(TURN, session="t2/planner"),
        replace(TURN, session="t1/planner"),
        replace(TURN, session="main", agent="main"),
    ]
    assert codes(turns) == {
        ("w", "t1/planner"): "P1",
        ("w", "t2/planner"): "P2",
        ("w", "main"): "M",
    }


def test_traces_that_begin_together_share_a_caption_and_long_ids_are_cut() -> None:
    turn = TurnResult("first", "s", "planner", 0, 0, 100, 40, 8, 1.0, 1.0, 1.25, 2.0)
    later = {"start_s": 90.0, "first_token_s": 95.0, "end_s": 100.0}
    turns = [
        turn,
        replace(turn, trace="second"),
        replace(turn, trace="third"),
        replace(turn, trace="0123456789abcdef" * 2, **later),
    ]
    picture = timeline_svg([Side("side", turns)], ranks=1, title="", note="")
    texts = [node.text for node in ET.fromstring(picture).iter() if node.text]
    assert "first and 2 more" in texts
    assert "01234567…" in texts
    assert not any("second" in text for text in texts)


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("percent", range(0, 101, 5))
def test_letters_are_readable_on_every_colour_of_the_scale(percent: int) -> None:
    background, ink = luminance(colour_of(percent / 100)), luminance(ink_on(percent / 100))
    light, dark = max(background, ink), min(background, ink)
    assert (light + 0.05) / (dark + 0.05) >= 4.5


@given(st.floats(-1, 2))
def test_a_colour_is_six_hex_digits_for_any_share(share: float) -> None:
    assert re.fullmatch(r"#[0-9a-f]{6}", colour_of(share))
