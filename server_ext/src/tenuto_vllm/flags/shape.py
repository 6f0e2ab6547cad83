"""How large a model is and what a token of it costs, about, told by its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Any, NamedTuple

from tenuto_vllm.flags.values import Kind, count

_HEADS = ("num_attention_heads", "n_head", "n_heads")
# In the order in which vLLM looks for them.
_KV_HEADS = (
    *("n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num"),
    "num_attention_groups",
)
_EXPERTS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
_PICKED = (
    *("num_experts_per_tok", "num_experts_per_token", "experts_per_token"),
    *("top_k_experts", "moe_topk", "moe_top_k"),
)
_ATTENDING = frozenset({"full_attention", "attention"})


class Shape(NamedTuple):
    """A model's size.

    Attributes:
        heads: of attention.
        kv_heads: heads whose keys and values are cached; 1 with latents.
        is_latent: MLA.
        experts: of each layer; 0 for a dense model.
        picked: experts that work on a token.
        weights: of all layers, about; 0 where the configuration does not tell.
        active: of these, that work on a token.
        attended: FLOPs that a token costs for each token before it, about.
        reach: tokens before it that a token attends to at most; 0 for all.
    """

    heads: int
    kv_heads: int
    is_latent: bool
    experts: int
    picked: int
    weights: int
    active: int
    attended: int
    reach: int

    @property
    def splits(self) -> int:
        """What tensor parallelism has to divide, so that no rank holds what another holds."""
        return self.heads if self.is_latent else gcd(self.heads, self.kv_heads)

    def flops(self, behind: int) -> int:
        """Return what a prompt's token costs behind so many others: 2 for each weight, and these.

        0 where the configuration does not tell.
        """
        seen = min(behind, self.reach) if self.reach else behind
        return 2 * self.active + self.attended * seen if self.active else 0


def shape_of(text: Mapping[str, Any], kind: Kind) -> Shape | None:
    """Return the shape; None for a configuration that tells no number of heads."""
    heads = count(text, *_HEADS)
    if not heads:
        return None
    is_latent = count(text, "kv_lora_rank") > 0
    has_one = text.get("multi_query") is True and text.get("new_decoder_architecture") is not True
    kv_heads = 1 if is_latent or has_one else count(text, *_KV_HEADS) or heads
    experts = count(text, *_EXPERTS)
    picked = min(experts, count(text, *_PICKED) or 1)
    layers = count(text, "num_hidden_layers", "n_layer", "num_layers")
    hidden = count(text, "hidden_size", "n_embd", "d_model")
    full = _full(text, layers, kind)
    weights = active = attended = 0
    # The other layers of such a model are taken to be as large.
    if layers and hidden and (full or kind != "linear state"):
        mixing, pair = _attention(text, hidden, heads, kv_heads, is_latent)
        dense = layers if not experts else min(layers, count(text, "first_k_dense_replace"))
        inner = count(text, "intermediate_size", "n_inner", "ffn_dim") or 4 * hidden
        expert, shared = _expert(text, hidden, inner)
        common = layers * mixing + dense * 3 * hidden * inner + (layers - dense) * shared
        weights = common + (layers - dense) * experts * expert
        active = common + (layers - dense) * picked * expert
        attended = pair * full
    reach = count(text, "index_topk")
    return Shape(heads, kv_heads, is_latent, experts, picked, weights, active, attended, reach)


def _full(text: Mapping[str, Any], layers: int, kind: Kind) -> int:
    """Return the layers that attend to everything; 0 where the configuration does not tell."""
    told: object = text.get("layer_types")
    if isinstance(told, list):
        return sum(one in _ATTENDING for one in told)  # pyright: ignore[reportUnknownVariableType]
    if kind == "linear state":
        return layers // (count(text, "full_attention_interval") or layers + 1)
    return layers


def _attention(
    text: Mapping[str, Any], hidden: int, heads: int, kv_heads: int, is_latent: bool
) -> tuple[int, int]:
    """Return a layer's weights and its FLOPs for a pair of tokens."""
    if not is_latent:
        size = count(text, "head_dim") or hidden // heads
        return 2 * hidden * size * (heads + kv_heads), 4 * heads * size
    latent, turned = count(text, "kv_lora_rank"), count(text, "qk_rope_head_dim")
    key, value = count(text, "qk_nope_head_dim") + turned, count(text, "v_head_dim")
    rank = count(text, "q_lora_rank")
    asks = rank * (hidden + heads * key) if rank else hidden * heads * key
    keeps = hidden * (latent + turned) + latent * heads * (key - turned + value)
    return asks + keeps + heads * value * hidden, 2 * heads * (key + value)


def _expert(text: Mapping[str, Any], hidden: int, inner: int) -> tuple[int, int]:
    """Return the weights of an expert, and of those that a layer has for every token."""
    size = count(text, "moe_intermediate_size") or inner
    shared = count(text, "shared_expert_intermediate_size") or size * count(
        text, "n_shared_experts", "num_shared_experts"
    )
    return 3 * hidden * size, 3 * hidden * shared
