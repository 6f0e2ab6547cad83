"""A scripted model on loopback, and the frameworks kept from calling home."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator

import pytest
from openai import _base_client

from tenuto import context
from tests.frameworks.scripted import Model
from tests.frameworks.stamps import Stamps
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
    "CREWAI_TESTING": "true",
    "OTEL_SDK_DISABLED": "true",
    "OPENAI_API_KEY": "k",
}


# A client that is collected closes itself in whatever event loop runs by then.
_base_client.AsyncHttpxClientWrapper.__del__ = lambda self: None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stamps", metavar="NAME", help="compare what is stamped with this file")
    parser.addoption("--stamps-write", action="store_true", help="write that file")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "stamps(framework, style, what): a row of docs/frameworks")
    if name := config.getoption("--stamps"):
        config.pluginmanager.register(Stamps(name, config.getoption("--stamps-write")))
    # The warnings of others are theirs to mend.
    for line in ("ignore", r"error:::tenuto\.", r"error:::tests\."):
        config.addinivalue_line("filterwarnings", line)


def pytest_sessionfinish() -> None:
    """Collect the event loops that pydantic-ai's `run_sync` leaves, before pytest judges them."""
    with warnings.catch_warnings(action="ignore"):
        gc.collect()


@pytest.fixture(scope="module", autouse=True)
def _adapters_of_its_own() -> Iterator[None]:
    """Have what a module's adapters join be joined in that module only."""
    joined = [context.REFINES]
    if (hooks := sys.modules.get("langchain_core.tracers.context")) is not None:
        joined.append(hooks._configure_hooks)
    before = [list(one) for one in joined]
    yield
    for one, kept in zip(joined, before, strict=True):
        one[:] = kept


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
