"""docs/dialects.md shows the table that the program uses, and its sources."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tenuto import dialects
from tenuto.dialects.hosts import HOSTS
from tenuto.dialects.model import TARGETING, Dialect

PAGE = Path(__file__).parents[4] / "docs/dialects.md"
TEXT = PAGE.read_text("utf-8")


def code(words: object) -> str:
    return f"`{words}`"


def listed(items: list[str]) -> str:
    return "<br>".join(items) or "none"


def row(dialect: Dialect) -> str:
    """Return a dialect's line of the first table."""
    headers = [f"{code(name)} {marker}" for name, marker in dialect.carries]
    headers += [f"{code(each.header)} priority" for each in dialect.priority]
    headers += [f"{code(f'{name}: {value}')} last call" for name, value in dialect.final]
    body = [
        f"{code(each.path)} {each.carries}: {', '.join(sorted(each.routes))}"
        for each in dialect.body
    ]
    back = [code(echo.answer) for echo in dialect.echo]
    ends = [
        f"{code('POST ' + rule.path)}, {code(rule.key)} in its {rule.place}" for rule in dialect.end
    ]
    cells = [listed(headers), listed(body), listed(back), listed(ends), dialect.note]
    return f"| {code(dialect.name)} | {' | '.join(cells)} |"


def sources(dialect: Dialect) -> str:
    """Return a dialect's line of the list of sources."""
    by_where: dict[str, list[str]] = {}
    for fact, where in dialect.sources:
        by_where.setdefault(where, []).append(code(fact))
    parts = [
        f"{', '.join(facts)}: {f'<{where}>' if where.startswith('https') else where}"
        for where, facts in by_where.items()
    ]
    return f"* {code(dialect.name)}: {'; '.join(parts)}"


def hosts(name: str) -> str:
    """Return the line of the hosts that speak a dialect."""
    found = sorted(host for host, speaks in HOSTS.items() if speaks == name)
    return f"| {code(name)} | {', '.join(map(code, found))} |"


@pytest.mark.parametrize("name", dialects.DIALECTS)
def test_the_page_has_the_dialects_row_and_its_sources(name: str) -> None:
    lines = TEXT.splitlines()
    assert row(dialects.DIALECTS[name]) in lines
    assert sources(dialects.DIALECTS[name]) in lines


def test_the_page_has_no_row_that_the_table_has_not() -> None:
    shown = re.findall(r"^\| `([^`]+)` \|.*\|.*\|.*\|.*\|.*\|$", TEXT, re.MULTILINE)
    assert shown == list(dialects.DIALECTS)


@pytest.mark.parametrize("name", sorted(set(HOSTS.values())))
def test_the_page_lists_the_hosts_of_each_dialect(name: str) -> None:
    assert hosts(name) in TEXT.splitlines()


@pytest.mark.parametrize("name", TARGETING)
def test_the_page_names_what_is_never_sent(name: str) -> None:
    assert code(name) in TEXT
