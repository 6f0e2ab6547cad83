"""What is promised of prefill and decode holds in the stored simulation."""

from __future__ import annotations

import json

from benchmarks.prefill_decode.__main__ import CAPACITY, GIGABYTES_PER_S, OTHER_CAPACITIES, RATIOS
from benchmarks.prefill_decode.page import LATENCY, PAGE, SERVERS, page, pool, stored
from benchmarks.prefill_decode.rules import RULES

DATA = stored()
POOLS = {(*ratio, speed) for ratio in RATIOS for speed in GIGABYTES_PER_S}
OURS = [row for row in DATA["rows"] if row["rule"] == "ours"]


def test_the_page_is_what_the_stored_simulation_says() -> None:
    text = PAGE.read_text("utf-8")
    assert text == page(text, DATA)


def test_every_rule_was_played_on_every_pool_and_ours_with_every_cache() -> None:
    rows = {(pool(row), row["rule"]) for row in DATA["rows"] if row["capacity"] == CAPACITY}
    assert rows == {(one, rule) for one in POOLS for rule in RULES}
    assert {(pool(row), row["capacity"]) for row in OURS} == {
        (one, capacity) for one in POOLS for capacity in (CAPACITY, *OTHER_CAPACITIES)
    }


def test_the_decision_is_a_twentieth_from_the_best_choice_at_most() -> None:
    for row in OURS:
        assert 0 <= row["regret"] <= 0.05, (pool(row), row["capacity"])


def test_a_decision_takes_30_microseconds_at_most() -> None:
    assert max(DATA["decision_us"].values()) <= 30


def test_the_application_adds_a_millisecond_to_two_stages_by_hand_at_most() -> None:
    rows = json.loads(LATENCY.read_text("utf-8"))["rows"]
    added = [row["added_ms"] for row in rows if row["way"] == "remote"]
    assert len(added) == 3
    assert max(added) <= 1.0


def test_on_real_servers_every_turn_that_says_what_it_keeps_was_foretold() -> None:
    for name, row in json.loads(SERVERS.read_text("utf-8"))["policies"].items():
        assert row["foretold_exactly"] == row["foretellable"] >= 24, name
