"""Whether two runs of the same traces differ, and what moved. Pure functions of results."""

from __future__ import annotations

from tenuto.compare.as_json import as_json
from tenuto.compare.checks import FIELDS
from tenuto.compare.comparison import Comparison, compare
from tenuto.compare.values import CannotCompare, Estimate, Figure, Verdict

__all__ = [
    "FIELDS",
    "CannotCompare",
    "Comparison",
    "Estimate",
    "Figure",
    "Verdict",
    "as_json",
    "compare",
]
