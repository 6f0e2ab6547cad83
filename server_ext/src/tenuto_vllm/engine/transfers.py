"""Transfers of a cache that come too late: dropped where the engine's request is made.

A prefill node keeps what it computed for its lease. Whoever fetches later gets what has been
written there since: an answer with status 200, wrong tokens, and a poisoned prefix cache (vLLM
0.32). So the prefill node writes a deadline into what it answers, which routers hand on as it is,
and the decode node looks at it. Its heartbeats renew the lease from the moment its engine has the
request, so the last place to look is before that, where nothing but a queue of messages lies
between. A request without a deadline is not touched.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

from tenuto_vllm import logs
from tenuto_vllm.placement.split import MARGIN
from tenuto_vllm.placement.split.emit import DEADLINE

IDENTITY = "tenuto_transfer_identity"

_PARAMS = "kv_transfer_params"
_LEASE = "kv_lease_duration"
_LEASE_S = 30.0
_METHODS = ("process_inputs_async", "process_inputs")
_INSTALLED = "_tenuto_transfers"


def install(engine_client: object) -> bool:
    """Let one engine client drop transfers whose deadline has passed, once.

    Args:
        engine_client: vLLM's `AsyncLLM`, `app.state.engine_client` in its server.

    Returns:
        True when it does, from here on or from before; False for a vLLM without the method.
    """
    try:
        client: Any = engine_client
        inputs = client.input_processor
        if getattr(inputs, _INSTALLED, False):
            return True
        names = list(inspect.signature(inputs.process_inputs).parameters)
        place = names.index("params")
        for name in _METHODS:
            if (original := getattr(inputs, name, None)) is not None:
                setattr(inputs, name, _guarded(original, place))
        setattr(inputs, _INSTALLED, True)
        config = getattr(client.vllm_config, "kv_transfer_config", None)
        if config is not None:
            outputs = client.output_processor
            lease = lease_s(config.kv_connector_extra_config)
            outputs.process_outputs = _stamping(outputs.process_outputs, lease - lease * MARGIN)
        _show(client)
    except Exception:
        return False
    return True


def _guarded(original: Callable[..., Any], place: int) -> Callable[..., Any]:
    @functools.wraps(original)
    def process_inputs(*args: Any, **kwargs: Any) -> Any:
        params = args[place] if len(args) > place else kwargs.get("params")
        if drop_expired(getattr(params, "extra_args", None), time.time()):
            logs.tell(logging.WARNING, "transfer_expired")
        return original(*args, **kwargs)

    return process_inputs


def _stamping(original: Callable[..., Any], keeps_s: float) -> Callable[..., Any]:
    @functools.wraps(original)
    def process_outputs(engine_core_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        # All answers come through here.
        with contextlib.suppress(Exception):
            for output in engine_core_outputs:
                if output.kv_transfer_params is not None:
                    stamp(output.kv_transfer_params, time.time() + keeps_s)
        return original(engine_core_outputs, *args, **kwargs)

    return process_outputs


def stamp(params: object, deadline: float) -> None:
    """Write a deadline into what a prefill node answers, changed in place.

    Args:
        params: `kv_transfer_params` of the answer. One that is no offer of a prefill node, or
            has a deadline, is left as it is.
        deadline: Unix time.
    """
    if isinstance(params, dict):
        offer = cast("dict[str, Any]", params)
        if offer.get("do_remote_prefill") is True:
            offer.setdefault(DEADLINE, deadline)


def lease_s(extra: Mapping[str, Any]) -> float:
    """Return the shortest lease of a connector, or of several in one, seconds.

    Args:
        extra: vLLM's `kv_connector_extra_config`; without a lease there is vLLM's own.
    """
    told: list[Any] = [extra]
    told += [one.get("kv_connector_extra_config") or {} for one in extra.get("connectors", ())]
    return min((float(one[_LEASE]) for one in told if _LEASE in one), default=_LEASE_S)


def drop_expired(extra_args: object, now_s: float) -> bool:
    """Take a transfer off a request if its deadline has passed.

    Args:
        extra_args: of vLLM's sampling parameters; changed in place.
        now_s: Unix time.

    Returns:
        Whether there was one and it is gone.
    """
    if not isinstance(extra_args, dict):
        return False
    held = cast("dict[str, Any]", extra_args)
    params = held.get(_PARAMS)
    if params is None:
        return False
    if not isinstance(params, dict):
        # The connector takes it for an object, and the engine would end with it.
        del held[_PARAMS]
        return True
    if DEADLINE not in params:
        return False
    deadline = cast("dict[str, Any]", params)[DEADLINE]
    # What is no time was not written by us, and a transfer is only ever worth time.
    if isinstance(deadline, int | float) and not isinstance(deadline, bool) and now_s < deadline:
        return False
    del held[_PARAMS]
    return True


def identity(config: object, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what two nodes must have alike beside what vLLM's own routes tell of them.

    Args:
        config: vLLM's `VllmConfig`; what it lacks is "unknown".
        environ: of the process.
    """

    def of(path: str) -> str:
        value: Any = config
        for name in path.split("."):
            value = getattr(value, name, _ABSENT)
        return "unknown" if value is _ABSENT else str(value).removeprefix("torch.")

    return {
        "model": of("model_config.model"),
        "dtype": of("model_config.dtype"),
        "cache_dtype": of("cache_config.cache_dtype"),
        "block_size": of("cache_config.block_size"),
        "hybrid_off": of("scheduler_config.disable_hybrid_kv_cache_manager"),
        "connector": of("kv_transfer_config.kv_connector"),
        "hash_seed": environ.get("PYTHONHASHSEED", "random"),
    }


_ABSENT = object()


@functools.cache
def _gauge() -> Any:
    client: Any = importlib.import_module("prometheus_client")
    about = "What a prefill node and a decode node must have alike"
    labels = [*identity(None, {})]
    return client.Gauge(IDENTITY, about, labels, multiprocess_mode="mostrecent")


def _show(client: Any) -> None:
    try:
        _gauge().labels(**identity(client.vllm_config, os.environ)).set(1)
    except Exception:
        logs.tell(logging.DEBUG, "transfer_identity_unknown")
