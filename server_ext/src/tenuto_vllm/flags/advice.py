"""What is advised for a model.

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
from typing import Any

from tenuto_vllm.flags import roles
from tenuto_vllm.flags.kinds import kind_of, text_of
from tenuto_vllm.flags.values import Advice, Flag, Kind, Side, count

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


def advise(config: Mapping[str, Any], side: Side | None = None) -> Advice:
    """Return what to start vLLM with.

    Args:
        config: the model's `config.json`; what it holds beyond the known keys is ignored.
        side: of prefill and decode apart; None for a server that does both.
    """
    text = text_of(config)
    kind, layers = kind_of(text)
    notes = tuple(_notes(kind, config, text))
    flags = [_SCHEDULER, _MIDDLEWARE]
    if kind == "linear state":
        flags += [_CACHING, _INTERVAL]
    elif kind == "sliding window":
        flags += [_INTERVAL]
    if side is None:
        flags += [_BLOCK, _EVENTS] if kind == "sliding window" else [_EVENTS]
        return Advice(kind, layers, tuple(flags), notes)
    more = roles.part(text, kind, side)
    return Advice(
        kind,
        layers,
        (*flags, *more.flags, _EVENTS),
        (*notes, *more.notes),
        side.role,
        more.environment,
    )


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
        has_mtp = any(count(part, key) for key in _MTP for part in (config, text))
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
