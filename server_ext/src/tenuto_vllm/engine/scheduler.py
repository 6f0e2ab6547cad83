"""`TurnScheduler`: vLLM's scheduler, with blocks handed out in the order of the turns.

vllm serve MODEL --middleware tenuto_vllm.TurnMiddleware --scheduler-cls tenuto_vllm.TurnScheduler
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from tenuto_vllm.engine.boundaries import BoundaryMixin
from tenuto_vllm.engine.retention import RetentionMixin

_SCHEDULERS = {
    "diffusion": ("vllm.v1.core.sched.diffusion_scheduler", "DiffusionScheduler"),
    "async": ("vllm.v1.core.sched.async_scheduler", "AsyncScheduler"),
    "sync": ("vllm.v1.core.sched.scheduler", "Scheduler"),
}


class TurnMixin(BoundaryMixin, RetentionMixin):
    """For a scheduler of one's own: `class Mine(TurnMixin, AsyncScheduler)`."""


class TurnScheduler:
    """For `--scheduler-cls`: makes the scheduler that vLLM would take, with `TurnMixin`."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return it; arguments are those of vLLM's Scheduler."""
        config = kwargs["vllm_config"] if "vllm_config" in kwargs else args[0]
        if getattr(config.model_config, "is_diffusion", False):
            kind = "diffusion"
        else:
            is_async = getattr(config.scheduler_config, "async_scheduling", False)
            kind = "async" if is_async else "sync"
        module, name = _SCHEDULERS[kind]
        return _with_turns(getattr(importlib.import_module(module), name))(*args, **kwargs)


@functools.cache
def _with_turns(base: type) -> type:
    return type(f"Turn{base.__name__}", (TurnMixin, base), {"__module__": __name__})
