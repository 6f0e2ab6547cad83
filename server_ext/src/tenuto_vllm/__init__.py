"""Session-aware data-parallel placement and retention for vLLM.

vllm serve MODEL --middleware tenuto_vllm.TurnMiddleware --scheduler-cls tenuto_vllm.TurnScheduler
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tenuto_vllm.asgi.middleware import TurnMiddleware

if TYPE_CHECKING:
    from tenuto_vllm.engine.scheduler import TurnMixin, TurnScheduler

__all__ = ["TurnMiddleware", "TurnMixin", "TurnScheduler"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load what needs vLLM when it is asked for; the middleware runs without."""
    if name in {"TurnMixin", "TurnScheduler"}:
        return getattr(importlib.import_module("tenuto_vllm.engine.scheduler"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
