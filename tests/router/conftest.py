"""Fixtures of the tests that run the real vllm-router; `fleet.py` starts it."""

from __future__ import annotations

import importlib.util
import itertools
import os

import pytest

if importlib.util.find_spec("vllm_router_rs") is None:
    # Needs `pip install vllm-router==0.1.17`.
    collect_ignore_glob = ["test_*.py"]

# What the client tells servers in the background is not looked at here.
os.environ["TENUTO_NEWS"] = "0"

_PROMPTS = itertools.count()


@pytest.fixture
def prompt() -> str:
    """A prompt that no other test sends."""
    return f"prompt {next(_PROMPTS)}"
