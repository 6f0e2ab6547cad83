"""Stable run, session and turn markers on every request of an agent program.

client = tenuto.wrap(AsyncOpenAI(base_url=...))
with tenuto.run("ticket-4711") as run:
    with run.agent("planner"):
        await client.chat.completions.create(...)
"""

from __future__ import annotations

import os as _os
from typing import TYPE_CHECKING
from typing import Any as _Any

from tenuto.carrier import environment, extract, inherit_environment, inject
from tenuto.diagnose import Current, Diagnosis, current, diagnose, headers
from tenuto.errors import ConfigError, StreamInterrupted, TenutoError
from tenuto.expect import Expectation, tool
from tenuto.openai import wrap
from tenuto.propagate import ContextExecutor, ctxgen, propagate
from tenuto.retry import retrying
from tenuto.scopes import Agent, Run, run, turn

if TYPE_CHECKING:
    from tenuto.recording import record

__all__ = [
    "Agent",
    "ConfigError",
    "ContextExecutor",
    "Current",
    "Diagnosis",
    "Expectation",
    "Run",
    "StreamInterrupted",
    "TenutoError",
    "ctxgen",
    "current",
    "diagnose",
    "environment",
    "extract",
    "headers",
    "inject",
    "propagate",
    "record",
    "retrying",
    "run",
    "tool",
    "turn",
    "wrap",
]

__version__ = "0.1.0"

inherit_environment(_os.environ)


def __getattr__(name: str) -> _Any:
    # Programs that do not record load nothing for it.
    if name == "record":
        from tenuto.recording import record  # noqa: PLC0415

        return record
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
