"""How a model's layers remember a prompt, told by its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenuto_vllm.flags.values import Kind, count

_NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
_LINEAR_LAYERS = frozenset(
    {"mamba", "mamba2", "linear_attention", "linear", "conv", "short_conv", "recurrent", "hybrid"}
)
_LINEAR_KEYS = ("linear_attn_config", "attn_layer_period", "mamba_d_ssm", "layer_group_size")
_LINEAR_FAMILIES = frozenset(
    {
        *("jamba", "zamba2", "falcon_h1", "bamba", "nemotron_h", "plamo2", "lfm2", "lfm2_moe"),
        *("qwen3_next", "kimi_linear", "minimax_text_01", "minimax_m1", "bailing_moe_linear"),
        *("qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid"),
    }
)
_NO_ATTENTION = frozenset({"mamba", "mamba2", "falcon_mamba"})


def text_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a configuration that tells of its language model."""
    for key in _NESTED:
        inner = config.get(key)
        if isinstance(inner, Mapping) and inner:
            return text_of(inner)  # pyright: ignore[reportUnknownArgumentType]
    return config


def kind_of(text: Mapping[str, Any]) -> tuple[Kind, str]:
    """Return the kind, and the same in words with the window."""
    if str(text.get("model_type")) in _NO_ATTENTION:
        return "no cache", "no attention at all"
    if _is_linear(text):
        return "linear state", "a running state (Mamba, linear attention or convolution)"
    if count(text, "attention_chunk_size"):
        return "chunked attention", f"chunks of {text['attention_chunk_size']} tokens"
    window = count(text, "sliding_window") or count(text, "sliding_window_size")
    kinds = _layers(text, "layer_types")
    slides = "sliding_attention" in kinds if kinds else text.get("use_sliding_window") is not False
    if window and slides and window < (count(text, "max_position_embeddings") or window + 1):
        return "sliding window", f"a sliding window of {window} tokens"
    return "full attention", "latents (MLA)" if count(text, "kv_lora_rank") else "full attention"


def _layers(text: Mapping[str, Any], key: str) -> frozenset[str]:
    """Return the kinds of layers that a key lists, or the letters of its pattern."""
    told: object = text.get(key)
    return frozenset(map(str, told)) if isinstance(told, (list, str)) else frozenset()  # pyright: ignore[reportUnknownArgumentType]


def _is_linear(text: Mapping[str, Any]) -> bool:
    # A hybrid's configuration may hold nothing but attention, as that of Granite 4 micro.
    listed = [
        (_layers(text, "layer_types"), _LINEAR_LAYERS),
        (_layers(text, "layers_block_type"), _LINEAR_LAYERS),
        (_layers(text, "hybrid_override_pattern"), frozenset("M")),
        (_layers(text, "attn_type_list"), frozenset("0")),
    ]
    if any(layers for layers, _ in listed):
        return any(layers & linear for layers, linear in listed)
    family = str(text.get("model_type"))
    return family in _LINEAR_FAMILIES or any(text.get(key) for key in _LINEAR_KEYS)
