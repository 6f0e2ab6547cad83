"""docs/frameworks.md shows what runs of the frameworks' tests have stored, and no more."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from tests.frameworks.stamps import WORDS
from tests.frameworks.table import PAGE, page, stored

FRAMEWORKS = Path(__file__).parents[1] / "frameworks"


def test_the_page_shows_what_is_stored() -> None:
    text = PAGE.read_text("utf-8")
    assert text == page(text, stored())


def test_every_mark_has_been_proven_and_every_row_has_a_mark() -> None:
    marks = [
        [ast.literal_eval(argument) for argument in node.args]
        for path in FRAMEWORKS.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.stamps"
    ]
    assert marks
    rows = [row for run in stored().values() for row in run["rows"]]
    assert [mark for mark in marks if not any(_is_of(row, mark) for row in rows)] == []
    assert [row for row in rows if not any(_is_of(row, mark) for mark in marks)] == []


def test_the_releases_are_those_that_are_pinned() -> None:
    pinned = "".join(path.read_text("utf-8") for path in FRAMEWORKS.glob("requirements*.txt"))
    for run in stored().values():
        for version in run["versions"].values():
            assert f"=={version}\n" in pinned


def _is_of(row: list[Any], mark: list[Any]) -> bool:
    framework, style, what = mark
    named, called, carried = row
    ordered = ", ".join(word for word in WORDS if word in re.split(r",\s*", what))
    return bool(
        re.fullmatch(_pattern(framework), named)
        and re.fullmatch(_pattern(style), called)
        and carried == ordered
    )


def _pattern(style: str) -> str:
    # A parameter that is true or false may leave nothing, and then no space before it.
    parts = re.split(r"\s*\{\w+\}", style)
    return r"\s*.*".join(re.escape(part) for part in parts).replace(r"\s*.*\ ", r"\s*.*\s*")
