"""Stable run, session and turn markers on every request of an agent program.

client = tenuto.wrap(AsyncOpenAI(base_url=...))
with tenuto.run("ticket-4711") as run:
    with run.agent("planner"):
        await client.chat.completions.create(...)
"""

from __future__ import annotations

from tenuto.context import Agent, Run, run
from tenuto.errors import ConfigError, TenutoError
from tenuto.openai import wrap

__all__ = ["Agent", "ConfigError", "Run", "TenutoError", "run", "wrap"]

__version__ = "0.1.0"
