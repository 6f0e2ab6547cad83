"""Two servers for all tests of this folder; they take about a minute to start."""

from __future__ import annotations

import pytest

from tests.pd.pair import pair


@pytest.fixture(scope="session")
def servers():
    with pair() as started:
        yield started
