"""Two servers for all tests of this folder; they take about a minute to start."""

from __future__ import annotations

import pytest

from tests.pd.pair import pair


@pytest.fixture(scope="session")
def servers():
    with pair() as started:
        yield started


def pytest_collection_modifyitems(items):
    """Run what starts servers of its own first: idle workers with NIXL take a core each."""
    items.sort(key=lambda item: "servers" in item.fixturenames)
