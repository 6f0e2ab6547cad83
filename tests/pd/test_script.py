"""Turns of an agent program on two real servers, with NIXL between them."""

from __future__ import annotations

import pytest

from tests.pd.pair import BLOCK, alone
from tests.pd.script import OUTPUT, STEPS, run

BLOCK_BYTES = 2 * 2 * 2 * 32 * 4 * BLOCK
"""Two layers, keys and values, two heads of 32 numbers of four bytes."""


@pytest.fixture(scope="module")
def mixed(servers):
    return run(servers, 1)


def is_remote(row, servers):
    return row.told.prefiller == servers.prefill.root_url


def test_the_script_has_turns_of_each_kind(mixed):
    assert len(mixed.rows) >= 24
    assert {row.step.does for row in mixed.rows} == {step.does for step in STEPS}


def test_a_remote_prefill_fetches_what_the_decode_server_lacks_and_nothing_else(mixed, servers):
    remote = [row for row in mixed.rows if is_remote(row, servers)]
    assert len(remote) >= 3
    for row in remote:
        if row.step.does == "compact unsaid":
            continue
        lacked = len(row.prompt) - row.held
        assert row.decode["external_hits"] == row.decode["transferred"] == lacked
        assert row.decode["computed"] == 0
        assert row.decode["bytes"] == -(-lacked // BLOCK) * BLOCK_BYTES


def test_cold_and_large_prompts_are_prefilled_remotely_and_warm_turns_where_they_are(
    mixed, servers
):
    for row in mixed.rows:
        expected = row.step.does in {"start", "large", "fresh"}
        if not row.step.does.startswith("compact"):
            assert is_remote(row, servers) is expected, row.step


def test_what_was_foretold_as_cached_is_what_the_answers_say(mixed):
    for row in mixed.rows:
        if row.step.does != "compact unsaid":
            assert row.told.predicted == row.told.cached, row.step
    assert sum(row.told.cached for row in mixed.rows) > 10_000


def test_every_answer_is_that_of_one_server_alone(mixed, servers):
    for row in mixed.rows:
        assert row.output == alone(servers.decode.root_url, row.prompt, OUTPUT), row.step


def test_nothing_was_given_up(mixed):
    assert [row.told.fallback for row in mixed.rows] == [""] * len(mixed.rows)
