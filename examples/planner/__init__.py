"""A planner, workers with a tool in parallel, and a verifier that sends back for repair."""

from __future__ import annotations

import importlib
from typing import Any

PROGRAMS = {"langgraph": "langgraph_agents", "agents": "openai_agents"}


def program(framework: str) -> Any:
    """Return `solve` of one program; the other's framework need not be installed."""
    return importlib.import_module(f"{__name__}.{PROGRAMS[framework]}").solve
