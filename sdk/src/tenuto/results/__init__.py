"""Result files: what every call of a run met, one JSON line each, after a header."""

from __future__ import annotations

from tenuto.results.file import Results, ResultWriter, read, write
from tenuto.results.header import Header
from tenuto.results.turn import TurnResult
from tenuto.trace.problem import Problem

__all__ = ["Header", "Problem", "ResultWriter", "Results", "TurnResult", "read", "write"]
