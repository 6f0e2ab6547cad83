"""The documents say what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import simulator_page
from benchmarks.page import page, session_rows, stored
from tenuto import dialects

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*/README.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\((?!https?://)([^)#]*)#?([^)]*)\)", text):
        file = (page.parent / target) if target else page
        assert file.exists(), target
        if anchor:
            there = file.read_text(encoding="utf-8")
            headings = {
                re.sub(r"[^a-z0-9 -]", "", line.lower().lstrip("# ")).replace(" ", "-")
                for line in there.splitlines()
                if line.startswith("#")
            }
            assert anchor in headings or f'id="{anchor}"' in there


def test_every_setting_is_on_the_page_of_its_command_and_every_dialect_in_its_own() -> None:
    pages = ("docs/operations.md", "docs/conformance.md", "docs/prefill-decode.md")
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
    dialect_page = (ROOT / "docs/dialects.md").read_text(encoding="utf-8")
    sources = [*ROOT.glob("sdk/src/**/*.py"), *ROOT.glob("server_ext/src/**/*.py")]
    used = {
        name for path in sources for name in re.findall(r"TENUTO_[A-Z_]+", path.read_text("utf-8"))
    }
    assert used
    assert [name for name in used if f"`{name}`" not in text] == []
    assert [name for name in dialects.DIALECTS if f"| `{name}` |" not in dialect_page] == []


def test_the_measurements_page_and_the_readme_show_the_stored_figures() -> None:
    sessions, *others = stored()
    assert (ROOT / "docs/measurements.md").read_text("utf-8") == page(sessions, *others)
    readme = (ROOT / "README.md").read_text("utf-8")
    for row in session_rows(sessions["runs"]):
        shown = [row[1], row[2], row[3], row[6]]
        assert all(cell in readme for cell in shown), shown


def test_the_readme_shows_what_the_simulations_computed() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    for one in simulator_page.stored()["placement"]:
        names = {"least-loaded", "session-hash", "prefix-oracle", "tenuto"}
        if one["placement"] in names and one["tokens_per_rank"] == 1_000_000:
            assert f"{one['computed_tokens'] / 1e6:,.0f}" in readme, one["placement"]


def test_the_simulations_page_shows_the_stored_figures() -> None:
    shown = (ROOT / "docs/simulations.md").read_text("utf-8")
    assert shown == simulator_page.page(simulator_page.stored())


def test_every_page_says_something() -> None:
    assert [path.name for path in PAGES if len(path.read_text("utf-8")) < 200] == []


def test_no_module_has_grown_past_what_one_room_holds() -> None:
    sources = [*ROOT.glob("sdk/src/**/*.py"), *ROOT.glob("server_ext/src/**/*.py")]
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in sources}
    assert {path.name: count for path, count in lengths.items() if count > 330} == {}
    assert sorted(lengths.values())[len(lengths) // 2] <= 110
