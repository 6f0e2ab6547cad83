"""Which of several base URLs a session's calls go to first, and where it lives."""

from __future__ import annotations

from collections import Counter
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.retry import policy, retrying
from tenuto.retry.failover import order
from tenuto.retry.homes import Homes
from tenuto.session import Session
from tenuto.sessions import SessionState

A, B, C = "http://a/v1", "http://b/v1", "http://c/v1"
ORIGINS = {A: ("http", b"a"), B: ("http", b"b"), C: ("http", b"c")}
STRANGER = ("http", b"stranger")

names = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6, unique=True)
sessions = st.text("0123456789abcdef", min_size=8, max_size=32)
cooling = st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0, 20))


@given(names, cooling, sessions, st.sampled_from("abcdefgh"))
def test_all_urls_are_tried_the_home_first_and_those_that_are_down_last(
    urls: list[str], down_until_s: dict[str, float], session: str, home: str
) -> None:
    ordered = order(urls, down_until_s, 10.0, home=home, session=session)
    assert sorted(ordered) == sorted(urls)
    is_down = [down_until_s.get(url, 0.0) > 10.0 for url in ordered]
    assert is_down == sorted(is_down)
    if home in urls and down_until_s.get(home, 0.0) <= 10.0:
        assert ordered[0] == home


@given(names, cooling, sessions, st.data())
def test_a_url_that_comes_or_goes_or_is_listed_elsewhere_leaves_the_others_in_their_order(
    urls: list[str], down_until_s: dict[str, float], session: str, data: Any
) -> None:
    listed = data.draw(st.permutations(urls))
    gone = data.draw(st.sampled_from(urls))
    before = order(urls, down_until_s, 10.0, session=session)
    after = order([url for url in listed if url != gone], down_until_s, 10.0, session=session)
    up = {url for url in urls if down_until_s.get(url, 0.0) <= 10.0}
    assert [url for url in after if url in up] == [
        url for url in before if url in up and url != gone
    ]


def test_sessions_are_spread_evenly_and_those_of_a_dead_url_over_all_others() -> None:
    urls, ids = [A, B, C, "http://d/v1"], [f"{number:032x}" for number in range(4000)]
    first = {one: order(urls, {}, 0.0, session=one)[0] for one in ids}
    assert all(900 < count < 1100 for count in Counter(first.values()).values())
    moved = [one for one in ids if first[one] == A]
    then = Counter(order(urls, {A: 9.0}, 0.0, home=A, session=one)[0] for one in moved)
    assert then.keys() == {*urls} - {A}
    assert all(count > len(moved) / 4 for count in then.values())


def session(fork: Any = "fresh", parent: Session | None = None) -> Session:
    return Session("run", "session", SessionState(), parent=parent, fork=fork)


def test_a_session_lives_where_it_was_served_last_else_where_its_newest_token_is_from() -> None:
    homes, one = Homes(ORIGINS), session()
    assert homes.of(one) is None
    for origin in (ORIGINS[A], ORIGINS[B], STRANGER):
        one.state.keep_token(origin, "abcd.1", "X-Agent-Affinity")
    assert homes.of(one) == B
    one.state.home_url = "http://another list/v1"
    assert homes.of(one) == B
    homes.settle(one, C)
    assert homes.of(one) == C


@pytest.mark.parametrize(("fork", "home"), [("inherit", A), ("fresh", None)])
def test_a_child_begins_at_its_parents_home_where_it_inherits(fork: Any, home: Any) -> None:
    homes, parent = Homes(ORIGINS), session()
    child = session(fork, parent)
    homes.settle(parent, A)
    assert homes.of(child) == home
    homes.settle(child, B)
    assert (homes.of(child), homes.of(parent)) == (B, A)


def test_the_token_of_the_home_is_the_newest_one_that_is_carried_elsewhere() -> None:
    homes, one = Homes(ORIGINS), session()
    one.state.keep_token(ORIGINS[A], "aaaa.1", "X-Agent-Affinity")
    homes.settle(one, A)
    one.state.keep_token(ORIGINS[B], "bbbb.1", "X-Agent-Affinity")
    homes.settle(one, B)
    homes.settle(one, A)
    assert one.state.tokens()[-1] == (ORIGINS[A], "X-Agent-Affinity", "aaaa.1")
    one.state.home_url = None
    assert homes.of(one) == A


@pytest.mark.parametrize(
    ("url", "body", "kept"),
    [
        ("/responses", {"input": "hi"}, False),
        ("/responses", {"previous_response_id": "r"}, True),
        ("/responses", {"previous_response_id": None}, False),
        ("/responses", {"background": True}, False),
        ("/responses/r", None, True),
        ("/chat/completions", {"messages": []}, False),
        ("/files/f", None, False),
    ],
)
def test_calls_about_a_response_are_for_the_server_that_keeps_it(
    url: str, body: Any, kept: bool
) -> None:
    assert policy.is_kept_at_home(url, body, None) is kept
    assert policy.is_kept_at_home(url, None, body) is kept


def test_urls_are_told_from_tokens_by_their_origins_with_default_ports_left_out() -> None:
    with openai.OpenAI(base_url="https://a:443/v1", api_key="k") as plain:
        client: Any = retrying(plain, base_urls=["http://b:80/x/v1"], spread_sessions=True)
    assert client.__tenuto_retry__.homes.origins == {
        "https://a/v1": ("https", b"a"),
        "http://b:80/x/v1": ("http", b"b"),
    }
