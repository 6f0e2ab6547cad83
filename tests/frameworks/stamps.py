"""A pytest plug-in that notes which frameworks' calls a run has proven to be stamped.

`@pytest.mark.stamps("pydantic-ai", "{how}", "run, session, turn")` on a test names the
framework, the call style and what the test compares on the wire. `{how}` is the test's parameter
of that name; of a parameter that is true or false it is the name or nothing.
`pytest --stamps NAME` compares what has passed with `docs/measurements/frameworks/NAME.json`,
and `--stamps-write` writes that file.
"""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest

STORED = Path(__file__).parents[2] / "docs/measurements/frameworks"
WORDS = ("run", "session", "parent", "turn", "attempt", "nothing")
DISTRIBUTIONS = {
    "LangGraph": "langgraph",
    "LangChain": "langchain-openai",
    "OpenAI Agents SDK": "openai-agents",
    "pydantic-ai": "pydantic-ai-slim",
    "AutoGen": "autogen-ext",
    "CrewAI": "crewai",
    "instructor": "instructor",
    "litellm": "litellm",
    "Haystack": "haystack-ai",
    "smolagents": "smolagents",
    "Celery": "celery",
}
Row = tuple[str, str, str]


def row_of(mark: pytest.Mark, params: dict[str, Any]) -> Row:
    """Return (framework, call style, what is stamped) of a mark on a test with parameters.

    Raises:
        ValueError: the framework or one of the words is unknown.
    """

    said = {
        name: (name if value else "") if isinstance(value, bool) else value
        for name, value in params.items()
    }

    def named(framework: str, style: str, what: str) -> Row:
        framework, words = framework.format(**said), {word.strip() for word in what.split(",")}
        if framework not in DISTRIBUTIONS or not words <= set(WORDS):
            raise ValueError(f"stamps({framework!r}, {style!r}, {what!r}) uses unknown words")
        style = " ".join(style.format(**said).split()).replace(" ,", ",").strip(", ")
        return framework, style, ", ".join(word for word in WORDS if word in words)

    return named(*mark.args, **mark.kwargs)


class Stamps:
    """What of one run has passed, by rows: a row holds where each of its tests passed."""

    def __init__(self, name: str, write: bool) -> None:
        self.path = STORED / f"{name}.json"
        self.write = write
        self.held: dict[Row, bool] = {}
        self.problem = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            params = item.callspec.params if hasattr(item, "callspec") else {}
            for mark in item.iter_markers("stamps"):
                item.user_properties.append(("stamps", row_of(mark, params)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped or (report.when != "call" and report.passed):
            return
        for name, row in report.user_properties:
            if name == "stamps":
                self.held[tuple(row)] = self.held.get(tuple(row), True) and report.passed

    def found(self) -> dict[str, Any]:
        frameworks = {framework for framework, _, _ in self.held}
        versions = {one: importlib.metadata.version(DISTRIBUTIONS[one]) for one in frameworks}
        versions["openai"] = importlib.metadata.version("openai")
        rows = [list(row) for row, holds in self.held.items() if holds]
        return {"versions": dict(sorted(versions.items())), "rows": sorted(rows)}

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):
            return
        text = json.dumps(self.found(), indent=1) + "\n"
        if self.write:
            STORED.mkdir(exist_ok=True)
            self.path.write_text(text, encoding="utf-8")
        elif not self.path.exists() or self.path.read_text("utf-8") != text:
            self.problem = f"{self.path.name} says otherwise: make frameworks-table"
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.problem:
            terminalreporter.write_line(self.problem, red=True)
