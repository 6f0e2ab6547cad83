"""Settings that every test shares."""

from __future__ import annotations

import os

import pytest

from tenuto import process

os.environ["TENUTO_KEY"] = "a key for the tests, not a secret"


@pytest.fixture
def anyio_backend() -> str:
    """Run async tests on asyncio, which is what vLLM and openai run on."""
    return "asyncio"


@pytest.fixture(autouse=True)
def nothing_learned_before() -> None:
    """Start each test without what a process learns of agents and servers."""
    for shared in (process.WAITS, process.SERVERS, process.NEWS):
        shared.forget()
    process.FORGONE.clear()
    process.PASSED_OVER.clear()
