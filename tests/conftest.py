"""Settings that every test shares."""

from __future__ import annotations

import os

import pytest

os.environ["TENUTO_KEY"] = "a key for the tests, not a secret"


@pytest.fixture
def anyio_backend() -> str:
    """Run async tests on asyncio, which is what vLLM and openai run on."""
    return "asyncio"
