"""A model for vLLM's scheduler that exists by its configuration alone.

All that the virtual engine uses of vLLM comes from here, since vLLM's import warns of much.
"""

from __future__ import annotations

import functools
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

from examples.demo.tiny_model import make_tiny_model

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
with warnings.catch_warnings():
    # What vLLM's own imports warn of is no failure of a test of ours.
    warnings.simplefilter("ignore")
    import torch
    from vllm.engine.arg_utils import EngineArgs
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import (
        FullAttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
        MambaSpec,
        SlidingWindowSpec,
    )
    from vllm.v1.outputs import ModelRunnerOutput
    from vllm.v1.request import Request, RequestStatus
    from vllm.v1.structured_output import StructuredOutputManager

try:
    from vllm.v1 import kv_hints
except ImportError:
    kv_hints = None

from tenuto_vllm.retention.hint import ACTION

__all__ = [
    "AsyncScheduler",
    "KVCacheConfig",
    "ModelRunnerOutput",
    "Request",
    "RequestStatus",
    "SamplingParams",
    "Scheduler",
    "StructuredOutputManager",
    "get_request_block_hasher",
    "init_none_hash",
    "sha256",
]

MESSAGE, SYSTEM = 500, 501
"""Tokens: a message begins, and it is the system prompt."""

WINDOW = 128


class ChatTokens:
    """What of a tokenizer tells where messages begin."""

    def get_added_vocab(self) -> dict[str, int]:
        """Return the token that begins a message."""
        return {"<|im_start|>": MESSAGE}

    def encode(self, _: str, **__: Any) -> list[int]:
        """Return the token of the word that follows it."""
        return [SYSTEM]


def envelope(*actions: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the field of a request that holds actions (type, payload); none before vLLM 0.31."""
    if kv_hints is None:
        return {}
    made = [kv_hints.KvHintAction("0", kind, "0.1", payload) for kind, payload in actions]
    return {"kv_hints": kv_hints.KvHintsEnvelope("0.1", "m", made)}


def carried(hint: str) -> dict[str, Any]:
    """Return the field of a request that brings a packed hint, as this vLLM can."""
    if not hint:
        return {}
    return envelope((ACTION, {"hint": hint})) or {"session_id": hint}


@functools.cache
def engine_config(batched_tokens: int, policy: str) -> Any:
    """Return a configuration of the engine, which is not to be changed."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return EngineArgs(
            model=str(make_tiny_model(Path(folder))),
            load_format="dummy",
            max_model_len=32768,
            enforce_eager=True,
            max_num_seqs=64,
            max_num_batched_tokens=batched_tokens,
            scheduling_policy=policy,
            enable_prefix_caching=True,
            skip_tokenizer_init=True,
        ).create_engine_config()


def cache_groups(kind: str, block_size: int) -> list[KVCacheGroupSpec]:
    """Return what the layers of a model of a kind keep; see `VirtualEngine`."""
    heads = {"num_kv_heads": 1, "head_size": 16, "dtype": torch.float32}
    full = FullAttentionSpec(block_size=block_size, **heads)
    if kind == "full":
        return [KVCacheGroupSpec(["attention"], full)]
    if kind == "window":
        other = SlidingWindowSpec(block_size=block_size, sliding_window=WINDOW, **heads)
    else:
        shapes = ((4, 16), (8, 8))
        other = MambaSpec(
            block_size=block_size,
            shapes=shapes,
            dtypes=(torch.float32, torch.float32),
            mamba_cache_mode="align",
        )
    return [KVCacheGroupSpec(["attention"], full), KVCacheGroupSpec([kind], other)]
