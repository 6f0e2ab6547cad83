"""What the decision is told and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Role = Literal["prefill", "decode"]
Why = Literal[
    "short", "warm", "transfer", "cold", "large", "queue", "stall", "slo", "no-prefill", "no-decode"
]


class Node(NamedTuple):
    """One worker as it is when a turn is placed.

    Attributes:
        name: as in `Copies`.
        role: what it is for. A decode node prefills too; a prefill node only prefills.
        queued_tokens: uncached prompt tokens that wait there or are being computed.
        running: requests that decode there.
        is_up: whether it is ready and answers.
        queued_s: seconds of prefill that wait there beside `queued_tokens`, for a caller that
            adds up `PlacementDecision.work_s`; with long contexts tokens alone say little.
        arrivals_per_s: prompts that come to the node in a second; a prefill of w seconds
            makes them wait for w * w / 2 times as many seconds together.
    """

    name: str
    role: Role = "decode"
    queued_tokens: int = 0
    running: int = 0
    is_up: bool = True
    queued_s: float = 0.0
    arrivals_per_s: float = 0.0


class Turn(NamedTuple):
    """One request to place.

    Attributes:
        session: whose turn it is.
        prompt_tokens: length of the prompt; 0 where nobody has tokenised it, and then the
            markers say it: what is kept and `append`.
        slo_ttft_s: seconds that its class may wait for the first token; None for any.
        slo_itl_s: seconds between tokens that its class promises; None for any.
        keep: leading tokens of the last context that are unchanged; None for all.
        prefix: prompt and output of the last turn, tokens.
        append: tokens that are new since, as the client estimates them.
        output_tokens: that are expected.
    """

    session: str
    prompt_tokens: int = 0
    slo_ttft_s: float | None = None
    slo_itl_s: float | None = None
    keep: int | None = None
    prefix: int | None = None
    append: int | None = None
    output_tokens: int = 256


class Costs(NamedTuple):
    """What things take. The defaults are those of a dense model of 32B on four fast GPUs.

    n tokens behind c cached ones take `prefill_s` + `prefill_s_per_token` * n +
    `prefill_s_per_token2` * n * (2c + n) seconds on a node of its own.

    Attributes:
        prefill_s: of each prefill, seconds.
        prefill_s_per_token: seconds for a token's own part.
        prefill_s_per_token2: seconds for a pair of tokens, attention: half of each square.
        transfer_bytes_per_s: from a prefill node to a decode node.
        kv_bytes_per_token: of the cache, all layers of all shards.
        hop_s: of the second request and its handshake.
        stall_weight: what a second that a prefill takes on a decode node costs each request
            that decodes there, as a part of a second of waiting. 0.25 counts a second of
            slower tokens as 0.3 of a second before the first, 0.85 of them lost.
        decode_s_per_running: seconds that each request beside it adds to an output token.
        chunk_tokens: of a prompt that a decode node computes between two tokens of the others.
        is_bidirectional: whether a prefill node fetches what only the decode node has, instead
            of computing it again.
    """

    prefill_s: float = 0.02
    prefill_s_per_token: float = 4e-5
    prefill_s_per_token2: float = 6e-10
    transfer_bytes_per_s: float = 12.5e9
    kv_bytes_per_token: float = 262_144.0
    hop_s: float = 0.015
    stall_weight: float = 0.25
    decode_s_per_running: float = 1e-4
    chunk_tokens: int = 2048
    is_bidirectional: bool = False

    def prefill(self, tokens: int, behind: int) -> float:
        """Return seconds for so many tokens behind so many cached ones."""
        if tokens <= 0:
            return 0.0
        per_token = self.prefill_s_per_token + self.prefill_s_per_token2 * (2 * behind + tokens)
        return self.prefill_s + tokens * per_token

    def transfer(self, tokens: int) -> float:
        """Return seconds to move so many tokens' cache to another node."""
        return max(0, tokens) * self.kv_bytes_per_token / self.transfer_bytes_per_s


class PlacementDecision(NamedTuple):
    """Where a turn is prefilled and decoded.

    Attributes:
        decode: name of the node that answers.
        prefill: name of the node that prefills; None where `decode` does.
        deadline_s: seconds from the end of the prefill within which the decode node must
            have the request; later the prompt is prefilled where it is decoded. None where
            there is no transfer.
        why: what decided it: one of a closed set, see docs/prefill-decode.md.
        new_tokens: of the prompt that `decode` has not cached.
        transfer_tokens: whose cache moves to `decode`; 0 without a transfer.
        predicted: cached tokens of the prompt on the nodes that were chosen, by name. What
            the answer reports is that of the node that prefills.
        prompt_tokens: length of the prompt, as told or estimated.
        work_s: seconds of prefill that the node which prefills gets.
        first_token_s: seconds to the first token, as expected.
        local_cost_s: what the best local prefill would cost, waiting and damage.
        remote_cost_s: the same of the best remote one; None where there is no prefill node.
    """

    decode: str
    prefill: str | None
    deadline_s: float | None
    why: Why
    new_tokens: int
    transfer_tokens: int
    predicted: Mapping[str, int]
    prompt_tokens: int
    work_s: float
    first_token_s: float
    local_cost_s: float
    remote_cost_s: float | None
