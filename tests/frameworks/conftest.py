"""A scripted model on loopback, and the frameworks kept from calling home."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator

import pytest

from tests.frameworks.scripted import Model
from tests.loopback import serving

# CrewAI keeps files of its own.
_HOME = tempfile.TemporaryDirectory()

# Read when the frameworks are imported: prices, usage reports and traces stay away.
os.environ |= {
    "HOME": _HOME.name,
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LANGSMITH_TRACING": "false",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "OTEL_SDK_DISABLED": "true",
    "OPENAI_API_KEY": "k",
}


def pytest_configure(config: pytest.Config) -> None:
    # The warnings of others are theirs to mend.
    for line in ("ignore", r"error:::tenuto\.", r"error:::tests\."):
        config.addinivalue_line("filterwarnings", line)


@pytest.fixture(scope="module")
def served() -> Iterator[Model]:
    model = Model()
    with serving(model) as model.url:
        yield model


@pytest.fixture
def model(served: Model) -> Model:
    """The model with nothing asked yet and nothing scripted."""
    fresh = Model()
    served.script, served.failures, served.arrived = fresh.script, [], []
    return served


@pytest.fixture(autouse=True)
def _default_loop() -> Iterator[None]:
    """Lend an event loop to each `run_sync`, which would leave one of its own open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()
