"""What of vLLM's scheduler the retention relies on, checked where it runs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

QUEUE = {
    "popleft": (),
    "popleft_n": ("n",),
    "remove": ("block",),
    "append": ("block",),
    "prepend_n": ("blocks",),
    "append_n": ("blocks",),
    "get_all_free_blocks": (),
    "iter_blocks_after": ("cursor",),
}
"""Parameters of the methods of `FreeKVCacheBlockQueue` (the same in vLLM 0.30 to 0.33)."""

SCHEDULER = {
    "add_request": ("request",),
    "_free_blocks": ("request",),
    "schedule": ("throttle_prefills",),
    "reset_prefix_cache": ("reset_running_requests", "reset_connector"),
}
"""The same of `Scheduler`; what is passed on whole may grow."""

_POOL = "vllm.v1.core.block_pool.BlockPool"
_QUEUE = "vllm.v1.core.kv_cache_utils.FreeKVCacheBlockQueue"
_PASSED_ON = frozenset({"schedule", "reset_prefix_cache"})


def problem(scheduler: Any) -> str:
    """Return what keeps the retention off a scheduler, as the end of a sentence, or ""."""
    pool = scheduler.kv_cache_manager.block_pool
    if not pool.enable_caching:
        return "prefix caching is off"
    queue = _kind(pool.free_block_queue)
    for kind, name in ((_kind(pool), _POOL), (queue, _QUEUE)):
        if f"{kind.__module__}.{kind.__qualname__}" != name:
            return f"{kind.__qualname__} stands where {name} is expected"
    if any(getattr(queue, name).__module__ != queue.__module__ for name in QUEUE):
        return "the queue of free blocks is changed by another extension"
    return _changed(queue, QUEUE) or _changed(_kind(scheduler), SCHEDULER)


def _changed(owner: Any, methods: Mapping[str, tuple[str, ...]]) -> str:
    """Return what is wrong with the first method that is not as it is known."""
    for name, parameters in methods.items():
        found = _parameters(owner, name)
        if found is None:
            return f"{owner.__name__} has no {name}"
        if name not in _PASSED_ON and found != parameters:
            return f"{owner.__name__}.{name} takes {', '.join(found) or 'nothing'}"
    return ""


def _parameters(owner: Any, name: str) -> tuple[str, ...] | None:
    """Return a method's parameters; of one that is ours, those of the base's it stands for."""
    for kind in owner.__mro__:
        method: Any = kind.__dict__.get(name)
        if method is not None and not kind.__module__.startswith("tenuto_vllm"):
            return tuple(inspect.signature(method).parameters)[1:]
    return None


def _kind(one: object) -> Any:
    return type(one)
