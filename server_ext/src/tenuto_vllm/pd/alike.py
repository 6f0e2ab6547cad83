"""Whether a prefill server and a decode server are alike enough to hand a cache on. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from tenuto_vllm.engine.transfers import IDENTITY

_INFO = re.compile(r"^(vllm:cache_config_info|" + IDENTITY + r")\{(.*)\} \S+$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_CACHE = ("block_size", "cache_dtype", "prefix_caching_hash_algo", "mamba_cache_mode")

MUST = ("version", "model", "max_model_len", "block_size", "cache_dtype", "dtype", "hybrid_off")
"""That differ between no two servers of a hand-off; NIXL refuses it, or the answer is wrong."""
SHOULD = ("hash_seed", "prefix_caching_hash_algo", "mamba_cache_mode", "connector")
"""The same where both tell them. A `hash_seed` of `random` differs from any."""


def facts(version: bytes, models: bytes, metrics: bytes) -> dict[str, str]:
    """Return what a server says it is; what it does not say is left out.

    Args:
        version: body of `/version`.
        models: body of `/v1/models`.
        metrics: body of `/metrics`; with the extension it tells dtype, hash seed and hybrid too.
    """
    found: dict[str, str] = {}
    if value := _object(version).get("version"):
        found["version"] = str(value)
    listed: Any = _object(models).get("data")
    if isinstance(listed, list) and listed and isinstance(listed[0], dict):
        first = cast("dict[str, Any]", listed[0])
        for name, key in (("model", "root"), ("max_model_len", "max_model_len")):
            if first.get(key) is not None:
                found[name] = str(first[key])
    for family, labels in _INFO.findall(metrics.decode("utf-8", "replace")):
        said = dict(_LABEL.findall(labels))
        names = _CACHE if family != IDENTITY else said
        found |= {name: said[name] for name in names if said.get(name, "unknown") != "unknown"}
    return found


def differences(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the names of what differs between two servers.

    What only one of them tells is no difference: it is in `untold`.
    """
    both = [name for name in (*MUST, *SHOULD) if name in one and name in other]
    return [
        name
        for name in both
        if one[name] != other[name] or (name == "hash_seed" and one[name] == "random")
    ]


def untold(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the names of what cannot be compared, since a server does not tell it."""
    return [name for name in (*MUST, "hash_seed") if name not in one or name not in other]


def cache_tokens(metrics: bytes) -> int | None:
    """Return how many tokens a server's cache holds, all its ranks together; None if untold."""
    tokens = 0
    for family, labels in _INFO.findall(metrics.decode("utf-8", "replace")):
        if family == IDENTITY:
            continue
        said = dict(_LABEL.findall(labels))
        sizes = [said.get(name, "") for name in ("num_gpu_blocks", "block_size")]
        if not all(size.isascii() and size.isdigit() for size in sizes):
            return None
        tokens += int(sizes[0]) * int(sizes[1])
    return tokens or None


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        told: Any = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return cast("Mapping[str, Any]", told) if isinstance(told, dict) else {}
