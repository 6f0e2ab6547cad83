"""Session-aware data-parallel placement and retention for vLLM.

vllm serve MODEL --middleware tenuto_vllm.TurnMiddleware --scheduler-cls tenuto_vllm.TurnScheduler
"""

from __future__ import annotations

from tenuto_vllm.asgi.middleware import TurnMiddleware
from tenuto_vllm.engine.scheduler import TurnMixin, TurnScheduler

__all__ = ["TurnMiddleware", "TurnMixin", "TurnScheduler"]

__version__ = "0.1.0"
