"""A loopback server that keeps every header line, for clients that are wrapped twice."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.calls import AT_ONCE, TWO_FAILURES
from tests.loopback import OURS, Recorder, serving

# langsmith reads it at every call.
os.environ["LANGSMITH_TRACING"] = "true"


def pytest_configure(config: pytest.Config) -> None:
    # The warnings of others are theirs to mend.
    for line in ("ignore", r"error:::tenuto\.", r"error:::tests\."):
        config.addinivalue_line("filterwarnings", line)


@dataclass
class Lines(Recorder):
    """A recorder that notes our headers where one is on a request twice."""

    url: str = ""
    repeated: list[str] = field(default_factory=list[str])

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        names = [name.decode() for name, _ in scope.get("headers", ())]
        self.repeated += [name for name in OURS if names.count(name) > 1]
        await super().__call__(scope, receive, send)

    def expect_failures(self) -> None:
        """Forget what has arrived and let the next call fail twice."""
        self.arrived, self.script = [], [*TWO_FAILURES]


@pytest.fixture(scope="module")
def lines() -> Iterator[Lines]:
    lines = Lines(answer_headers=AT_ONCE)
    with serving(lines) as lines.url:
        yield lines
