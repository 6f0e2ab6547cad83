"""How many tokens an engine's step takes: few where others wait for their next, else many."""

from __future__ import annotations

from tenuto_vllm.flags.shape import Shape
from tenuto_vllm.flags.values import Flag, Role

_FLOPS = 4e14
"""That a GPU is taken to reach in a second: 40 % of an H100's 989 TFLOP/s (dense, 16 bits)."""
_BOUND = 300
"""Tokens from which on weights of 16 bits are read faster than they are used: those 989 TFLOP/s
over 3.35 TB/s."""
_BEHIND = 65_536
"""Tokens of context that a warm turn of an agent has before it, as an example."""
_MOST_S = 0.05
"""That a prefill beside them may add to the others' next token."""

_BATCH = "--max-num-batched-tokens"


def chunks(shape: Shape | None, role: Role, tensor: int) -> list[Flag]:
    """Return the chunk cap and what follows from it.

    Args:
        shape: None where it is not known.
        role: of the server.
        tensor: GPUs that compute a chunk.
    """
    return _small(shape, tensor) if role == "decode" else _large(shape)


def _small(shape: Shape | None, tensor: int) -> list[Flag]:
    size, why = 1024, "the configuration does not tell what a token costs, so a middle size"
    if shape is not None and (flops := shape.flops(_BEHIND)):
        per_s = tensor * _FLOPS / flops
        sizes = [size for size in (2048, 1024, 512) if size / per_s <= _MOST_S]
        # Below it a step reads all weights for little.
        size = sizes[0] if sizes else 256
        seconds = size / per_s
        why = (
            f"a warm turn that is prefilled here delays the others' next token by a chunk, which "
            f"takes about {seconds * 1000:.0f} ms: {flops / 1e9:.0f} GFLOP a token "
            f"({2 * shape.active / 1e9:.0f} for the weights that work on it, the rest for "
            f"{_BEHIND:,} tokens before it) on {_gpus(tensor)} at {_FLOPS / 1e12:.0f} "
            f"TFLOP/s. {_choice(size, seconds)}"
        )
    most = min(1024, size // 2)
    return [
        Flag(_BATCH, str(size), f"{why}. `tenuto-vllm pd --costs` takes it as chunk_tokens"),
        Flag(
            "--max-num-seqs",
            str(most),
            "each answer takes a token of the chunk, and vLLM serves those before any prompt: half "
            "stays for prompts",
        ),
    ]


def _gpus(number: int) -> str:
    return "1 GPU" if number == 1 else f"{number} GPUs"


def _choice(size: int, seconds: float) -> str:
    aim = f"{_MOST_S * 1000:.0f} ms"
    if seconds <= _MOST_S:
        return f"It is the largest of 256 to 2048 that stays within {aim}"
    return f"That is above the {aim} aimed at, but a smaller chunk reads all weights for little"


def _large(shape: Shape | None) -> list[Flag]:
    size = 8192
    why = (
        "nobody waits for a next token here, and each chunk reads all weights and all context "
        "before it once; vLLM's own is 2048, 8192 or 16384 by the GPU's memory"
    )
    if shape is not None and shape.experts:
        filled = _BOUND * shape.experts // shape.picked
        while size < min(filled, 32_768):
            size *= 2
        why += (
            f". {shape.picked} of {shape.experts} experts work on a token: each has about "
            f"{_BOUND} tokens, with which it is no longer bound by reading its weights, in a chunk "
            f"of {filled:,}"
        )
    return [
        Flag(_BATCH, str(size), f"{why}. Halve it where memory does not suffice"),
        Flag(
            "--long-prefill-token-threshold",
            str(size // 2),
            "only where short prompts come among long ones: vLLM goes on with a prompt that it has "
            "begun before it begins another, and with this leaves half of each chunk for that",
            is_needed=False,
        ),
    ]
