"""Session-aware data-parallel placement for vLLM.

vllm serve MODEL --data-parallel-size 2 --middleware tenuto_vllm.TurnMiddleware
"""

from __future__ import annotations

from tenuto_vllm.asgi.middleware import TurnMiddleware

__all__ = ["TurnMiddleware"]

__version__ = "0.1.0"
