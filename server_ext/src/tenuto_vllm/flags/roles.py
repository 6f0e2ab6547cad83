"""What a server needs for prefill and decode apart; of NIXL as vLLM 0.32 has it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from tenuto_vllm.flags.chunks import chunks
from tenuto_vllm.flags.shape import shape_of
from tenuto_vllm.flags.spread import spread
from tenuto_vllm.flags.values import Flag, Kind, Side, count

_DETAILS = Flag(
    "--enable-prompt-tokens-details",
    "",
    "the answer says how much of the prompt was cached, and `tenuto-vllm pd` corrects its ledger",
)
_HYBRID = Flag(
    "--no-disable-hybrid-kv-cache-manager",
    "",
    "NIXL moves states and windows as they are with it; both sides need the same, and said aloud "
    "vLLM stops where it cannot have it instead of turning it off",
)
_SEED = Flag(
    "PYTHONHASHSEED",
    "0",
    "the same blocks have the same hash on both sides; with xxhash it would be a random one. "
    "`tenuto-vllm pd` compares it",
)
_CONVOLUTION = Flag(
    "VLLM_SSM_CONV_STATE_LAYOUT", "DS", "NIXL moves running states in this layout alone"
)
_HOST = Flag(
    "VLLM_NIXL_SIDE_CHANNEL_HOST",
    "ADDRESS",
    "only where the sides are on several hosts: this host's address as the other side reaches it; "
    "vLLM's own is localhost. Whoever reaches the port is told where the cache lies",
    is_needed=False,
)
_ALIKE = (
    "Give both sides the same vLLM, the same string for the model (NIXL compares strings, not "
    "folders), and the same --dtype, --kv-cache-dtype, --attention-backend, --max-model-len and "
    "--speculative-config."
)
_WARM_UP = (
    "A server is ready when it has answered one ordinary request: a decode server whose first "
    "step follows a transfer has died on CPUs with AMX. `tenuto-vllm pd` sends one."
)


class Part(NamedTuple):
    """What a role adds to the advice."""

    flags: tuple[Flag, ...]
    environment: tuple[Flag, ...]
    notes: tuple[str, ...]


def part(text: Mapping[str, Any], kind: Kind, side: Side) -> Part:
    """Return what a server of one side is started with beside what every server is.

    Args:
        text: the part of a configuration that tells of the language model.
        kind: of its layers.
        side: which it is.
    """
    shape = shape_of(text, kind)
    flags = [_connector(side)]
    notes = [_ALIKE, _WARM_UP]
    environment = [_SEED, _port(side), _HOST]
    tensor = 1
    if shape is None:
        notes.append("The configuration tells no number of heads: nothing is said of parallelism.")
    else:
        how = spread(shape, kind, side)
        tensor = how.tensor
        flags += how.flags
        notes += how.notes
    flags += [*chunks(shape, side.role, tensor), _DETAILS]
    if kind in {"linear state", "sliding window"}:
        flags.append(_HYBRID)
    if kind == "linear state":
        environment.append(_CONVOLUTION)
    else:
        flags.append(_block(count(text, "kv_lora_rank") > 0))
    return Part(tuple(flags), tuple(environment), tuple(notes))


def _connector(side: Side) -> Flag:
    is_decode = side.role == "decode"
    extra: dict[str, Any] = {}
    config: dict[str, Any] = {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_consumer" if is_decode else "kv_producer",
    }
    why = ["decode fetches from prefill the blocks that it lacks; kv_both is deprecated with NIXL"]
    if is_decode or side.is_bidirectional:
        config["kv_load_failure_policy"] = "fail"
        why.append(
            "`fail`, vLLM's own: after a failed transfer `tenuto-vllm pd` asks once more without "
            "one, and knows. Behind a router that does not (vllm-router 0.1.17), take `recompute`"
        )
    if side.is_bidirectional:
        extra["bidirectional_kv_xfer"] = True
        why.append(
            "Bidirectional, on both sides: prefill fetches what only decode has, from 64 tokens "
            "on; decode keeps a turn's blocks for that up to 480 s (decoder_kv_blocks_ttl)"
        )
    lease_s = 30 if side.lease_s is None else side.lease_s
    if side.lease_s is not None:
        extra["kv_lease_duration"] = side.lease_s
    why.append(
        f"Prefill keeps what was not fetched for {lease_s} s (kv_lease_duration), and who fetches "
        f"later gets what came there since: the same on both sides, and `tenuto-vllm pd --lease "
        f"{lease_s}`"
    )
    if extra:
        config["kv_connector_extra_config"] = extra
    told = json.dumps(config, separators=(",", ":"))
    return Flag("--kv-transfer-config", told, ". ".join(why))


def _port(side: Side) -> Flag:
    return Flag(
        "VLLM_NIXL_SIDE_CHANNEL_PORT",
        "5700" if side.role == "decode" else "5600",
        "where the other side asks for the handshake, a port for each data parallel rank from this "
        "on; servers on one host need different ones",
    )


def _block(is_latent: bool) -> Flag:
    return Flag(
        "--block-size",
        "64" if is_latent else "16",
        "only where the sides have different GPUs or attention backends, of which each has a size "
        "of its own: it has to be the same, and this is one that "
        + ("most for MLA take" if is_latent else "most take; on CPUs 32"),
        is_needed=False,
    )
