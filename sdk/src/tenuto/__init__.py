"""Stable run, session and turn markers on every request of an agent program.

client = tenuto.wrap(AsyncOpenAI(base_url=...))
with tenuto.run("ticket-4711") as run:
    with run.agent("planner"):
        await client.chat.completions.create(...)
"""

from __future__ import annotations

from tenuto.errors import ConfigError, TenutoError
from tenuto.expect import Expectation, tool
from tenuto.openai import wrap
from tenuto.scopes import Agent, Run, run, turn

__all__ = [
    "Agent",
    "ConfigError",
    "Expectation",
    "Run",
    "TenutoError",
    "run",
    "tool",
    "turn",
    "wrap",
]

__version__ = "0.1.0"
