"""The embedded engine's settings and their defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenuto_vllm.embedded.errors import RequestError
from tenuto_vllm.embedded.latency import Latency
from tenuto_vllm.embedded.placements import PLACEMENTS
from tenuto_vllm.embedded.tokens import Call
from tenuto_vllm.retention import RETENTIONS

# From a generation request's body to what is answered: ASCII text, tool calls, or None for
# the engine's own words.
Answers = Callable[[Mapping[str, Any]], str | Sequence[Call] | None]


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Size and speed of the engine.

    Attributes:
        ranks: data-parallel ranks, >= 1.
        blocks: cache blocks of each rank, >= 2; one is reserved, as in vLLM.
        block_size: tokens in a block, >= 1.
        max_model_len: longest prompt and output together, in tokens, >= 2.
        prefill_tokens_per_s: uncached prompt tokens that a rank computes in a second, one
            request at a time; `inf` takes no time.
        decode_tokens_per_s: output tokens of each request in a second; `inf` takes no time.
        latency: how long things take; instead of the two speeds where it is given.
        placement: where requests go that name no rank, one of `PLACEMENTS`.
        retention: whose blocks are evicted first, one of `RETENTIONS`.
        served_model_name: the model's name in requests and answers.
        answers: what is answered, by the request's body; it runs on the event loop, so it must
            be quick. The engine's own words if None.

    Raises:
        ValueError: a value is out of its range.
    """

    ranks: int = 2
    blocks: int = 4096
    block_size: int = 16
    max_model_len: int = 32768
    prefill_tokens_per_s: float = 20_000.0
    decode_tokens_per_s: float = 1_000.0
    latency: Latency | None = None
    placement: str = "least-loaded"
    retention: str = "lru"
    served_model_name: str = "tiny"
    answers: Answers | None = None

    def __post_init__(self) -> None:
        """Refuse values that no engine can run with."""
        least = {"ranks": 1, "blocks": 2, "block_size": 1, "max_model_len": 2}
        for name, minimum in least.items():
            if getattr(self, name) < minimum:
                raise ValueError(f"{name} is {getattr(self, name)}; the least is {minimum}")
        for name in ("prefill_tokens_per_s", "decode_tokens_per_s"):
            # Written this way round so that NaN is refused too.
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")
        for name, known in (("placement", PLACEMENTS), ("retention", RETENTIONS)):
            if getattr(self, name) not in known:
                there_are = ", ".join(known)
                raise ValueError(f"no {name} {getattr(self, name)!r}; there are {there_are}")
        # No request says whose it is, and none what comes after it.
        if self.placement == "user-hash" or RETENTIONS[self.retention].is_oracle:
            name = "user-hash" if self.placement == "user-hash" else self.retention
            raise ValueError(f"{name} needs what no request says; `tenuto simulate` has it")

    def takes(self) -> Latency:
        """Return how long things take."""
        if self.latency is not None:
            return self.latency
        return Latency(
            uncached_s=1 / self.prefill_tokens_per_s, decode_s=1 / self.decode_tokens_per_s
        )

    def check_length(self, prompt_tokens: int, output_tokens: int) -> None:
        """Refuse a request that is longer than the model's context.

        Raises:
            RequestError: with the lengths and the limit.
        """
        total = prompt_tokens + output_tokens
        if total > self.max_model_len:
            raise RequestError(
                f"This model's maximum context length is {self.max_model_len} tokens. "
                f"However, you requested {output_tokens} output tokens and your prompt contains "
                f"{prompt_tokens} input tokens, for a total of {total} tokens. Please reduce the "
                "length of the input prompt or the number of requested output tokens."
            )
