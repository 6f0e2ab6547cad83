"""What `vllm serve` is started with for a model, read off its configuration. Pure.

| the model's layers | told by | what retention needs |
|---|---|---|
| attend to everything (MLA too) | nothing of the below | nothing more |
| chunked attention | `attention_chunk_size` | nothing more |
| slide a window | `sliding_window`, `layer_types` | the interval 0 and turn boundaries |
| Mamba, linear attention, short convolution | `layer_types`, the family's own keys | the same |
| have no attention at all | the family | vLLM caches no prefix |

The keys are those of the families that vLLM 0.30 to 0.33 serves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Kind = Literal["full attention", "chunked attention", "sliding window", "linear state", "no cache"]

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
_MTP = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "mtp_num_layers")
_DROPPED = {
    "BambaForCausalLM": "0.23",
    "MiniMaxText01ForCausalLM": "0.23",
    "MiniMaxM1ForCausalLM": "0.23",
    "MiniMaxForCausalLM": "0.23",
    "Plamo2ForCausalLM": "0.26",
    "Phi4FlashForCausalLM": "0.10",
}
"""Architectures that vLLM serves no more, and the last release that does."""


class Flag(NamedTuple):
    """One flag of `vllm serve`.

    Attributes:
        name: with its dashes.
        value: empty for a switch.
        why: one sentence.
        is_needed: it belongs on the command line; else only where `why` applies.
    """

    name: str
    value: str
    why: str
    is_needed: bool = True


class Advice(NamedTuple):
    """What is advised for a model.

    Attributes:
        kind: how its layers remember a prompt.
        layers: the same in words, with the window.
        flags: of `vllm serve`.
        notes: sentences on what no flag does.
    """

    kind: Kind
    layers: str
    flags: tuple[Flag, ...]
    notes: tuple[str, ...]


_SCHEDULER = Flag(
    "--scheduler-cls",
    "tenuto_vllm.TurnScheduler",
    "a session's blocks are evicted after those that nobody waits for",
)
_MIDDLEWARE = Flag(
    "--middleware",
    "tenuto_vllm.TurnMiddleware",
    "reads who calls and tells the scheduler; with several ranks it places sessions as well",
)
_INTERVAL = Flag(
    "--prefix-cache-retention-interval",
    "0",
    "states are kept at prompt ends, and by the scheduler above at the turns' boundaries; one "
    "every N tokens costs more memory and is seldom where a prompt branches off",
)
_CACHING = Flag(
    "--enable-prefix-caching", "", "said aloud, since its default differs by family and release"
)
_BLOCK = Flag(
    "--block-size",
    "16",
    "a boundary is cut down to a multiple of it; 16 is the default on most GPUs, on CPUs take 32, "
    "and where the attention backend refuses 16 its least",
    is_needed=False,
)
_EVENTS = Flag(
    "--kv-events-config",
    '{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://127.0.0.1:5557"}',
    "only where a router or an index listens to what is cached, bound there. Events carry the "
    "prompts' token ids: with `tcp://*:5557` vLLM binds, and all who reach the port can read them",
    is_needed=False,
)


def advise(config: Mapping[str, Any]) -> Advice:
    """Return what to start vLLM with.

    Args:
        config: the model's `config.json`; what it holds beyond the known keys is ignored.
    """
    text = _text(config)
    kind, layers = _kind(text)
    notes = [*_notes(kind, config, text)]
    flags = [_SCHEDULER, _MIDDLEWARE]
    if kind == "linear state":
        flags += [_CACHING, _INTERVAL]
    elif kind == "sliding window":
        flags += [_INTERVAL, _BLOCK]
    return Advice(kind, layers, (*flags, _EVENTS), tuple(notes))


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a configuration that tells of its language model."""
    for key in _NESTED:
        inner = config.get(key)
        if isinstance(inner, Mapping) and inner:
            return _text(inner)  # pyright: ignore[reportUnknownArgumentType]
    return config


def _kind(text: Mapping[str, Any]) -> tuple[Kind, str]:
    if str(text.get("model_type")) in _NO_ATTENTION:
        return "no cache", "no attention at all"
    if _is_linear(text):
        return "linear state", "a running state (Mamba, linear attention or convolution)"
    if _count(text, "attention_chunk_size"):
        return "chunked attention", f"chunks of {text['attention_chunk_size']} tokens"
    window = _count(text, "sliding_window") or _count(text, "sliding_window_size")
    kinds = _layers(text, "layer_types")
    slides = "sliding_attention" in kinds if kinds else text.get("use_sliding_window") is not False
    if window and slides and window < (_count(text, "max_position_embeddings") or window + 1):
        return "sliding window", f"a sliding window of {window} tokens"
    return "full attention", "latents (MLA)" if _count(text, "kv_lora_rank") else "full attention"


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


def _notes(kind: Kind, config: Mapping[str, Any], text: Mapping[str, Any]) -> list[str]:
    notes: list[str] = []
    if kind == "no cache":
        notes.append("vLLM caches no prefixes for a model without attention: nothing is retained.")
    if kind in {"full attention", "chunked attention"}:
        notes.append(
            "It resumes at any block: leave --prefix-cache-retention-interval alone, vLLM refuses "
            "all but 0."
        )
    if kind == "chunked attention":
        notes.append("vLLM caches its chunked layers as if they attended to everything.")
    if kind == "linear state":
        notes.append(
            "Leave --block-size alone: vLLM makes a block as large as a state ('Setting attention "
            "block size to ...' in its log), and a boundary is cut down to a multiple of it."
        )
    if kind in {"linear state", "sliding window"}:
        has_mtp = any(_count(part, key) for key in _MTP for part in (config, text))
        notes.append(
            f"{'It has layers for speculative decoding (MTP). ' if has_mtp else ''}With "
            "--speculative-config (EAGLE, MTP) the turn boundaries are off: vLLM's prompt ends "
            "alone are kept."
        )
    named: object = config.get("architectures")
    for name, release in _DROPPED.items():
        if isinstance(named, list) and name in named:
            notes.append(f"vLLM serves {name} up to {release}; the boundaries need 0.30 or later.")
    return notes


def _count(text: Mapping[str, Any], key: str) -> int:
    value = text.get(key)
    return value if isinstance(value, int) and value > 0 else 0
