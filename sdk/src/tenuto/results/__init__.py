"""Result files: what every call of a run met, one JSON line each, after a header."""

from __future__ import annotations

from tenuto.results.file import Results, ResultWriter, read, write
from tenuto.results.header import Header
from tenuto.results.place import refuse_existing
from tenuto.results.turn import TurnResult, cached_is_known, warm_turns
from tenuto.trace.problem import Problem

__all__ = [
    "Header",
    "Problem",
    "ResultWriter",
    "Results",
    "TurnResult",
    "cached_is_known",
    "read",
    "refuse_existing",
    "warm_turns",
    "write",
]
