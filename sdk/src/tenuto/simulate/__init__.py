"""Traces on a virtual clock: the embedded engine without its HTTP, many set-ups at once.

Needs the extension beside the SDK: `pip install 'tenuto-vllm[embedded]'`.
"""

from __future__ import annotations

try:
    import tenuto_vllm.embedded.core as _core
except ModuleNotFoundError as error:
    raise ImportError(
        f"tenuto.simulate needs {error.name}: pip install 'tenuto-vllm[embedded]'"
    ) from error

from tenuto.simulate.drive import simulate
from tenuto.simulate.fit import fit
from tenuto.simulate.grid import simulate_all
from tenuto.simulate.outcome import Outcome, outcome_of
from tenuto.simulate.setup import PLACEMENT_NAMES, RETENTION_NAMES, Setup

__all__ = [
    "PLACEMENT_NAMES",
    "RETENTION_NAMES",
    "Outcome",
    "Setup",
    "fit",
    "outcome_of",
    "simulate",
    "simulate_all",
]
del _core
