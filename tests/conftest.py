"""Settings that every test shares."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# Machines under load make single examples slow; the same examples run everywhere.
settings.register_profile("tenuto", deadline=None, derandomize=True, max_examples=200)
settings.load_profile("tenuto")

os.environ["TENUTO_KEY"] = "a key for the tests, not a secret"


@pytest.fixture
def anyio_backend() -> str:
    """Run async tests on asyncio, which is what vLLM and openai run on."""
    return "asyncio"
