"""The page about routers in front shows the figures that are stored, and they are good ones."""

from __future__ import annotations

from pathlib import Path

from benchmarks.deploying import FRONTS, stored, table

ROOT = Path(__file__).parents[2]


def test_the_page_shows_the_stored_figures() -> None:
    assert table(stored()) in (ROOT / "docs/deploying.md").read_text("utf-8")


def test_the_stored_figures_are_of_every_front_that_runs_here() -> None:
    rows = stored()["rows"]
    assert [(row["front"], row["marked"]) for row in rows] == [
        (one.name, marked) for one in FRONTS for marked in (False, True)
    ]
    files = {f"examples/deploy/{one.file}" for one in FRONTS if one.file}
    assert all((ROOT / file).is_file() for file in files)


def test_where_a_front_keeps_sessions_they_find_nearly_all_that_one_rank_would_have() -> None:
    rows = {(row["front"], row["marked"]): row for row in stored()["rows"]}
    ceiling = rows[FRONTS[-1].name, True]["cached"]
    for one in FRONTS[1:-1]:
        marked, plain = rows[one.name, True], rows[one.name, False]
        assert marked["same_server"] >= 0.99
        assert marked["same_rank"] >= 0.99
        assert marked["cached"] >= ceiling - 0.01
        assert marked["cached"] > plain["cached"] + 0.1
        # A hash of two dozen sessions is uneven, and heaps nothing.
        assert marked["busier_server"] < 0.8
