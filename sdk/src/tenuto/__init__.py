"""Stable run, session and turn markers on every request of an agent program.

client = tenuto.wrap(AsyncOpenAI(base_url=...))
with tenuto.run("ticket-4711") as run:
    with run.agent("planner"):
        await client.chat.completions.create(...)
"""

from __future__ import annotations

import os as _os

from tenuto.carrier import environment, extract, inherit_environment, inject
from tenuto.diagnose import Current, Diagnosis, current, diagnose, headers
from tenuto.errors import ConfigError, StreamInterrupted, TenutoError
from tenuto.expect import Expectation, tool
from tenuto.openai import wrap
from tenuto.propagate import ContextExecutor, ctxgen, propagate
from tenuto.retry import retrying
from tenuto.scopes import Agent, Run, run, turn

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
    "retrying",
    "run",
    "tool",
    "turn",
    "wrap",
]

__version__ = "0.1.0"

inherit_environment(_os.environ)
