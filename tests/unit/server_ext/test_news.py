"""The bodies of the two routes for news."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto_vllm import _wire
from tenuto_vllm.carriers import foreign_id
from tenuto_vllm.news import END_PATH, TURNS_PATH, News, NewsError, TurnNews, read_news

A, B = "session-a", "session-b"


def read(path: str, value: Any) -> tuple[News, list[str]]:
    dropped: list[str] = []
    return read_news(path, json.dumps(value).encode(), dropped), dropped


def test_turns_are_read_with_what_is_known_of_them() -> None:
    news, dropped = read(
        TURNS_PATH,
        [
            {"session": A, "next": "tool", "gap": 40_000, "ttl": 300},
            {"session": "of another shape"},
        ],
    )
    assert news.turns == (
        TurnNews(A, "tool", 40_000, 300),
        TurnNews(foreign_id("of another shape") or ""),
    )
    assert (news.ended, dropped) == ((), [])


def test_ended_sessions_are_read() -> None:
    assert read(END_PATH, {"sessions": [A, B]}) == (News(ended=(A, B)), [])


def test_bad_items_are_left_out_and_of_good_ones_the_bad_keys() -> None:
    news, dropped = read(
        TURNS_PATH,
        [
            {"session": A, "next": "lunch", "gap": -1, "ttl": True, "colour": 1},
            {"session": B, "next": ["tool"], "gap": 1.5},
            {"next": "tool"},
            7,
        ],
    )
    assert news.turns == (TurnNews(A), TurnNews(B))
    keys = ["news.next", "news.gap", "news.ttl", "news.next", "news.gap"]
    assert dropped == [*keys, "news.session", "news.item"]
    ended, dropped = read(END_PATH, {"sessions": [A, "", None, "x" * 1025, B]})
    assert (ended.ended, dropped) == ((A, B), ["news.session"] * 3)


def test_no_more_than_256_items_are_taken() -> None:
    for path, told in ((TURNS_PATH, [{"session": A}] * 300), (END_PATH, {"sessions": [A] * 300})):
        news, dropped = read(path, told)
        assert len(news.turns) + len(news.ended) == 256
        assert dropped == ["news.item"] * 44


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *(
            (path, body)
            for path in (TURNS_PATH, END_PATH)
            for body in (b"", b"{", b"\xff", b"7", b"null")
        ),
        (TURNS_PATH, b'{"session": "session-a"}'),
        (END_PATH, b'["session-a"]'),
        (END_PATH, b'{"sessions": "session-a"}'),
        (END_PATH, b"[" * 60_000),
    ],
)
def test_a_body_of_another_shape_is_refused_without_naming_any_id(path: str, body: bytes) -> None:
    with pytest.raises(NewsError, match=r"^The body ") as refusal:
        read_news(path, body, [])
    assert "session-a" not in str(refusal.value)


values = st.recursive(
    st.none() | st.integers() | st.floats() | st.text() | st.just(A),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["session", "sessions", "next", "gap", "ttl"]), inner)
    ),
)


@given(
    st.sampled_from([TURNS_PATH, END_PATH]),
    st.binary() | values.map(lambda v: json.dumps(v).encode()),
)
def test_any_body_is_news_of_valid_sessions_or_refused(path: str, body: bytes) -> None:
    try:
        news = read_news(path, body, [])
    except NewsError:
        return
    assert all(map(_wire.is_id, news.ended))
    for turn in news.turns:
        said = _wire.Turn(next=turn.next, gap=turn.gap, ttl=turn.ttl)
        assert _wire.is_id(turn.session)
        assert _wire.decode_turn(_wire.encode_turn(said).encode(), []) == said
