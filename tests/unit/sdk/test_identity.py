"""Ids follow the protocol's identity rules for every input."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import tenuto
from tenuto._wire import is_id
from tenuto.identity import derive_run_id, derive_session_id

# Lone surrogates arrive from file names and broken JSON; CR, LF and NUL from attackers.
texts = st.text(st.characters(codec=None), max_size=40) | st.sampled_from(
    ["a\r\nX-Evil: 1", "\x00", "\ud800", "", "ticket-4711", "x" * 10_000]
)
keys = st.binary(min_size=16, max_size=64)


@given(texts, keys)
def test_every_name_gives_a_valid_run_id_that_does_not_show_it(name: str, key: bytes) -> None:
    run_id = derive_run_id(name, key)
    assert is_id(run_id)
    assert len(name) < 4 or name not in run_id


@given(texts, keys, keys)
def test_a_run_id_depends_on_the_name_and_the_key(name: str, key: bytes, other: bytes) -> None:
    assert derive_run_id(name, key) == derive_run_id(name, key)
    assert derive_run_id(name, key) != derive_run_id(name + "!", key)
    assert (derive_run_id(name, key) == derive_run_id(name, other)) == (key == other)


parts = st.tuples(texts, texts, texts, texts)


@given(parts, parts)
def test_session_ids_are_equal_exactly_when_all_parts_are(
    one: tuple[str, str, str, str], two: tuple[str, str, str, str]
) -> None:
    assert is_id(derive_session_id(*one))
    assert (derive_session_id(*one) == derive_session_id(*two)) == (one == two)


def test_parts_that_only_join_alike_give_different_sessions() -> None:
    assert derive_session_id("r", "p", "ab", "c") != derive_session_id("r", "p", "a", "bc")
    assert derive_session_id("r", "p", "a", "11") != derive_session_id("r", "p", "a1", "1")


def test_any_run_name_and_agent_name_open_a_scope() -> None:
    for name in ("a\r\nb", "\ud800", "", 4711):
        with tenuto.run(name) as run, run.agent("b\r\nc") as agent:
            assert is_id(run.run_id)
            assert is_id(agent.session_id)


def test_runs_without_a_name_are_all_different() -> None:
    assert len({tenuto.run().run_id for _ in range(100)}) == 100
