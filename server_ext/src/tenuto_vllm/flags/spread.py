"""How a model is spread over GPUs so that no rank holds the cache of another."""

from __future__ import annotations

from typing import NamedTuple

from tenuto_vllm.flags.shape import Shape
from tenuto_vllm.flags.values import Flag, Kind, Role, Side

_HOST = 8
"""GPUs between which tensor parallelism is taken to be fast: those of one host."""


class Spread(NamedTuple):
    """How one side is spread.

    Attributes:
        tensor: ranks that share a token's work, `--tensor-parallel-size`.
        flags: of `vllm serve`.
        notes: sentences.
    """

    tensor: int
    flags: tuple[Flag, ...]
    notes: tuple[str, ...]


def spread(shape: Shape, kind: Kind, side: Side) -> Spread:
    """Return how to spread a model.

    Beyond the KV heads vLLM gives each rank one of them (`ModelConfig.get_num_kv_heads`), and
    each rank the whole latent with MLA.
    """
    # A state's layers are split; and a block is as large as a state, so both sides split alike.
    has_states = kind == "linear state"
    are_copied = shape.is_latent and not has_states and side.role == "decode"
    most = 1 if are_copied else _HOST
    tensor = max(
        size
        for size in range(1, most + 1)
        if shape.splits % size == 0 and (side.gpus is None or side.gpus % size == 0)
    )
    over = (side.gpus or tensor) // tensor
    flags = [Flag("--tensor-parallel-size", str(tensor), _why(shape, side.role, are_copied))]
    notes: list[str] = []
    if shape.experts and over > 1:
        flags += [
            Flag(
                "--data-parallel-size",
                str(over),
                f"{over} ranks with a cache of their own; the middleware places sessions on them",
            ),
            Flag(
                "--enable-expert-parallel",
                "",
                f"the {shape.experts} experts are spread over all {side.gpus} GPUs, each whole on "
                f"one of them; else each is cut into {side.gpus}",
            ),
        ]
    elif over > 1:
        notes.append(
            f"{side.gpus} GPUs hold {over} such servers: without experts there is nothing that "
            "ranks of one server would share. Name each server to `tenuto-vllm pd`."
        )
    if side.gpus is None:
        notes.append(
            "Nobody said how many GPUs there are (--gpus N)"
            + (
                "; this is one rank of decode, and with experts --data-parallel-size N and "
                "--enable-expert-parallel spread it over N."
                if are_copied
                else f"; tensor parallelism is taken to stay within a host of {_HOST}."
            )
        )
    notes += [_memory(shape), _pair(shape, has_states)]
    return Spread(tensor, tuple(flags), tuple(filter(None, notes)))


def _why(shape: Shape, role: Role, are_copied: bool) -> str:
    if are_copied:
        return (
            "the latents of MLA are whole on each tensor parallel rank, so more of them would hold "
            "each session's cache as often; ranks with sessions of their own are data parallel"
        )
    if shape.is_latent:
        short = ", which costs little where no session stays" if role == "prefill" else ""
        return (
            f"divides the {shape.heads} heads, so that all compute each prompt; each rank holds "
            f"all latents of MLA{short}"
        )
    return (
        f"divides the {shape.heads} heads and the {shape.kv_heads} KV heads; beyond "
        f"{shape.splits} vLLM holds the same KV head on several ranks, and the cache grows no more"
    )


def _memory(shape: Shape) -> str:
    if not shape.weights:
        return ""
    told = f"about {shape.weights / 1e9:.0f} billion weights"
    if shape.experts:
        told += f", {shape.active / 1e9:.0f} of which work on a token"
    return f"The GPUs' memory is not known here: the layers have {told}."


def _pair(shape: Shape, has_states: bool) -> str:
    if has_states:
        return (
            "Give prefill and decode the same --tensor-parallel-size: it splits a state, a block "
            "is made as large as one, and with prefix caching NIXL refuses blocks that differ."
        )
    if shape.is_latent:
        return (
            "NIXL takes different --tensor-parallel-size where one divides the other; with MLA "
            "decode then reads from one rank of prefill."
        )
    return (
        "NIXL takes different --tensor-parallel-size where one divides the other, and not a larger "
        "one of prefill that is above the KV heads."
    )
