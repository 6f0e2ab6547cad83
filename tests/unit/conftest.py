"""How property tests run."""

from __future__ import annotations

from hypothesis import settings

# Machines under load make single examples slow; the same examples run everywhere.
settings.register_profile("tenuto", deadline=None, derandomize=True, max_examples=200)
settings.load_profile("tenuto")
