"""A session in a dictionary: the same session wherever it is read, and nothing from a bad one."""

from __future__ import annotations

import json
import os
import re
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tenuto
from tenuto import carrier, process
from tenuto.context import current_session, inherit_session
from tenuto.session import Session
from tenuto.sessions import SessionStore
from tenuto.settings import Settings

ORIGIN = ("https", b"models.example:8443")
KEY = "tenuto-context"
ID = "0123456789abcdef"


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Forget every session, as another process does."""

    def forget() -> None:
        monkeypatch.setattr(process, "SESSIONS", SessionStore())

    return forget


def here() -> Session:
    session = current_session()
    assert session is not None
    return session


def test_a_session_goes_on_elsewhere_with_its_ids_turns_and_tokens(elsewhere: Any) -> None:
    with tenuto.run() as run, run.agent("planner"), run.agent("sucher übt", kind="auxiliary"):
        before = here()
        before.state.resume_at(7)
        before.state.keep_token(ORIGIN, "abcd.1", "X-Agent-Affinity")
        before.state.keep_token(("http", b"127.0.0.1:8000"), "t;k=v", "")
        carried = json.loads(json.dumps(tenuto.inject()))
    elsewhere()
    with tenuto.extract(carried) as scope:
        after = here()
        assert (scope.run_id, scope.session_id) == (before.run_id, before.session_id)
        assert after.markers == before.markers
        assert (after.agent, after.kind, after.fork) == (before.agent, before.kind, before.fork)
        assert after.state is not before.state
        assert after.state.next_turn == 7
        assert after.state.tokens() == before.state.tokens()
        assert tenuto.inject() == carried
    assert current_session() is None


def test_children_made_elsewhere_are_the_children_made_here(elsewhere: Any) -> None:
    run = tenuto.run()
    with run, run.agent("planner") as planner:
        carried = tenuto.inject()
        child = run.agent("search", instance=3)
    elsewhere()
    extracted = tenuto.extract(carried)
    for made in (extracted.agent("search", instance=3), extracted.agent("search", instance=3)):
        with made:
            assert (made.session_id, made.agent) == (child.session_id, child.agent)
            assert here().parent is not None
            assert here().parent.session_id == planner.session_id  # type: ignore[union-attr]


def test_a_child_that_inherits_brings_its_parents_token(elsewhere: Any) -> None:
    with tenuto.run() as run:
        here().state.keep_token(ORIGIN, "parents.1")
        with run.agent("heir", fork="inherit"):
            carried = tenuto.inject()
    elsewhere()
    with tenuto.extract(carried):
        assert here().fork == "inherit"
        assert here().token(ORIGIN) == "parents.1"
        assert here().token(("https", b"elsewhere.example")) is None


def test_an_older_carrier_takes_nothing_back() -> None:
    with tenuto.run():
        state = here().state
        state.keep_token(ORIGIN, "old.1")
        old = tenuto.inject()
        state.resume_at(3)
        state.keep_token(ORIGIN, "new.1")
        with tenuto.extract(old):
            assert here().state is state
        assert (state.next_turn, state.token(ORIGIN)) == (3, "new.1")


def test_a_newer_carrier_brings_its_tokens() -> None:
    with tenuto.run():
        state = here().state
        state.keep_token(ORIGIN, "old.1")
        text = tenuto.inject()[KEY].replace("turn=0", "turn=3").replace("old.1", "new.1")
        with tenuto.extract({KEY: text}):
            assert (state.next_turn, state.token(ORIGIN)) == (3, "new.1")
            assert here().is_resumable


def test_a_label_of_any_length_leaves_the_carrier_within_its_limit(elsewhere: Any) -> None:
    with tenuto.run() as run, run.agent("ü" * 5000) as agent:
        carried = tenuto.inject()
    elsewhere()
    with tenuto.extract(carried) as scope:
        assert scope.session_id == agent.session_id
        assert here().agent == agent.agent[:128]
    text = carried[KEY].replace("agent=", "agent=" + "a" * 200)
    with tenuto.extract({KEY: text}):
        assert len(here().agent) == 128


def test_of_two_equal_fields_the_first_counts(elsewhere: Any) -> None:
    elsewhere()
    homes = [("home", "http://h.example first.1"), ("home", "http://h.example second.1")]
    fields = [*GOOD.items(), ("run", ID[::-1]), ("turn", "9"), *homes]
    with tenuto.extract({KEY: urlencode(fields)}) as scope:
        assert (scope.run_id, here().state.next_turn) == (ID, 3)
        assert here().state.token(("http", b"h.example")) == "first.1"


def test_a_carrier_is_added_to_in_place_and_stays_as_it_is_outside_every_run() -> None:
    headers = {"task": "1"}
    assert tenuto.inject(headers) is headers
    assert headers == {"task": "1"}
    with tenuto.run():
        assert tenuto.inject(headers) is headers
    assert set(headers) == {"task", KEY}


texts = st.text(max_size=300)


@given(st.lists(texts, max_size=12), st.integers(0, 12), st.sampled_from(["fresh", "inherit"]))
def test_every_carrier_is_visible_ascii_of_at_most_4_kb_and_can_be_read(
    names: list[str], tokens: int, fork: Any
) -> None:
    with tenuto.run() as run:
        scopes = [run.agent(name, fork=fork) for name in names]
        for scope in scopes:
            scope.__enter__()
        for i in range(tokens):
            here().state.keep_token((*ORIGIN[:1], b"h%d.example" % i * 20), "t" * 512)
        (text,) = tenuto.inject().values()
        for scope in reversed(scopes):
            scope.__exit__(None, None, None)
    assert re.fullmatch(r"[!-~]{1,4096}", text)
    with tenuto.extract({KEY: text}) as scope:
        assert scope.session_id == (scopes[-1] if scopes else run).session_id


GOOD = {"run": ID, "session": ID, "turn": "3"}
BAD: dict[str, Any] = {
    "absent": {},
    "none": None,
    "no dictionary": ["tenuto-context"],
    "no text": {KEY: 3},
    "empty": {KEY: ""},
    "no query": {KEY: "%%%"},
    "latin": {KEY: b"run=\xff\xfe"},
    "not ascii": {KEY: "run=é"},
    "no session": {KEY: urlencode({"run": ID})},
    "no run": {KEY: urlencode({"session": ID})},
    "a bad id": {KEY: urlencode(GOOD | {"session": "x\r\nX-Evil: 1"})},
    "a bad parent": {KEY: urlencode(GOOD | {"parent": "short"})},
    "a negative turn": {KEY: urlencode(GOOD | {"turn": "-1"})},
    "a huge turn": {KEY: urlencode(GOOD | {"turn": "9" * 10})},
    "a turn of other digits": {KEY: urlencode(GOOD | {"turn": "٣"})},
    "too long": {KEY: urlencode(GOOD | {"more": "x" * 4096})},
    "too many fields": {KEY: urlencode(GOOD) + "&a=b" * 64},
}


@pytest.mark.parametrize("name", BAD)
def test_calls_in_the_scope_of_a_bad_carrier_are_in_no_session(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "settings", lambda: Settings(strict=True))
    with tenuto.run() as run:
        scope = tenuto.extract(BAD[name])
        with scope as entered:
            assert current_session() is None
            assert (entered.run_id, entered.session_id) == ("", "")
            assert tenuto.inject({"a": "b"}) == {"a": "b"}
            with scope.agent("planner", instance=3):
                assert current_session() is None
            with run.agent("own") as own:
                assert here().session_id == own.session_id
        assert here().session_id == run.session_id
        scope.end()


@given(st.dictionaries(st.one_of(texts, st.just(KEY)), st.one_of(texts, st.binary(), st.none())))
def test_no_carrier_makes_extract_raise(hostile: Any) -> None:
    with tenuto.extract(hostile):
        assert tenuto.inject() == {}


pairs = st.tuples(
    st.sampled_from(["run", "session", "parent", "agent", "kind", "fork", "turn", "home"]),
    st.one_of(st.just(ID), texts, st.just("http://h.example tok.1 X-Agent-Affinity")),
)


@given(st.lists(pairs, max_size=12))
def test_what_is_read_of_a_hostile_carrier_is_within_its_limits(fields: Any) -> None:
    text = urlencode([("run", ID), ("session", ID), *fields], errors="replace")
    with tenuto.extract({KEY: text}):
        session = current_session()
        if session is not None:
            assert session.markers[:3:2] == (ID, ID)
            assert session.agent.isprintable()
            assert len(session.agent) <= 128
            assert all(value.isascii() for _, _, value in session.state.tokens())


@pytest.mark.parametrize(
    "home",
    ["ftp://h t", "http://h", "http://u@h/p t", "http://h t\r\nEvil: 1", "http://h t X_Y", "h t"],
)
def test_a_bad_home_costs_the_home_alone(home: str, elsewhere: Any) -> None:
    elsewhere()
    fields = [*GOOD.items(), ("home", home), ("home", "http://good.example t.1")]
    with tenuto.extract({KEY: urlencode(fields)}):
        assert here().state.next_turn == 3
        assert here().state.token(("http", b"good.example")) == "t.1"
        assert ("http", b"h") not in here().state.origins()


@pytest.mark.parametrize("key", ["Tenuto-Context", "TENUTO-CONTEXT", b"Tenuto-Context"])
def test_a_carrier_is_read_whatever_became_of_the_case_of_its_name(key: Any) -> None:
    with tenuto.run() as run:
        (text,) = tenuto.inject().values()
    for value in (text, text.encode()):
        with tenuto.extract({"other": None, key: value}):
            assert here().session_id == run.session_id


def test_an_environment_carries_the_session_to_one_process_only() -> None:
    with tenuto.run() as run:
        env = tenuto.environment({"PATH": "/bin"})
        assert set(tenuto.environment()) == {*os.environ, "TENUTO_CONTEXT"}
    assert tenuto.environment(env) == {"PATH": "/bin"}
    try:
        carrier.inherit_environment(env)
        assert env == {"PATH": "/bin"}
        assert here().session_id == run.session_id
        with tenuto.run() as own:
            assert here().session_id == own.session_id
        with tenuto.extract({}):
            assert current_session() is None
        carrier.inherit_environment(env)
        assert here().session_id == run.session_id
    finally:
        inherit_session(None)


def test_a_malformed_environment_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    process.PASSED_OVER.clear()
    for _ in range(2):
        carrier.inherit_environment({"TENUTO_CONTEXT": f"session={ID}"})
    assert current_session() is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert ID not in caplog.text
