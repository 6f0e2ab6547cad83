"""One set-up to simulate: the engine's sizes and policies, and how the traces are played."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from tenuto.replay.schedule import Mode
from tenuto_vllm.embedded.latency import Latency
from tenuto_vllm.embedded.placements import PLACEMENTS
from tenuto_vllm.retention import RETENTIONS

PLACEMENT_NAMES = tuple(PLACEMENTS)
RETENTION_NAMES = tuple(RETENTIONS)

# Half of the hints of so large an error are off by more than a factor of 800.
_MOST_HINT_SIGMA = 10.0


@dataclass(frozen=True, slots=True)
class Setup:
    """What is simulated.

    Attributes:
        ranks: data-parallel ranks, >= 1.
        tokens_per_rank: size of each rank's cache.
        placement: one of `PLACEMENT_NAMES`.
        retention: one of `RETENTION_NAMES`.
        block_size: tokens in a block of the engine; None where it is the traces'.
        service: `modelled`: `latency` says how long a call takes and prefill is serial on a
            rank; `recorded`: each takes as long as it was recorded, whatever it finds.
        latency: how long things take.
        mode: see `tenuto.replay.Schedule`.
        time_scale: share of the recorded waits to keep.
        gap_cap_s: longest recorded wait to keep.
        live_sessions: traces that run at once; None for all.
        concurrency: calls in flight at most; None without a limit.
        max_output_tokens: answers are cut to this.
        sessions_per_user: traces that share a user, for `user-hash`.
        hint_sigma: of the log-normal error of the client's expectation of a tool's wait.
        seed: of those errors.

    Raises:
        ValueError: a value is out of its range, or a policy is unknown.
    """

    ranks: int = 8
    tokens_per_rank: int = 1_000_000
    placement: str = "session-sticky"
    retention: str = "lru"
    block_size: int | None = None
    service: Literal["modelled", "recorded"] = "modelled"
    latency: Latency = field(default_factory=Latency)
    mode: Mode = "closed"
    time_scale: float = 1.0
    gap_cap_s: float | None = None
    live_sessions: int | None = None
    concurrency: int | None = None
    max_output_tokens: int | None = None
    sessions_per_user: int = 4
    hint_sigma: float = 0.7
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        for name in ("ranks", "tokens_per_rank", "sessions_per_user"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; the least is 1")
        for name in ("block_size", "live_sessions", "concurrency", "max_output_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; the least is 1")
        for name in ("time_scale", "gap_cap_s"):
            value = getattr(self, name)
            if value is not None and not (value >= 0 and math.isfinite(value)):
                raise ValueError(f"{name} is {value}; it is a finite number, 0 or more")
        if not 0 <= self.hint_sigma <= _MOST_HINT_SIGMA:
            raise ValueError(f"hint_sigma is {self.hint_sigma}; it is 0 to {_MOST_HINT_SIGMA:g}")
        if self.placement not in PLACEMENTS:
            known = ", ".join(PLACEMENT_NAMES)
            raise ValueError(f"no placement {self.placement!r}; there are {known}")
        if self.retention not in RETENTIONS:
            known = ", ".join(RETENTION_NAMES)
            raise ValueError(f"no retention {self.retention!r}; there are {known}")

    @property
    def name(self) -> str:
        """A short name: ranks, cache, placement, retention."""
        size = self.tokens_per_rank
        text = f"{size / 1e6:g}M" if size >= 100_000 else str(size)
        return f"{self.ranks} x {text}, {self.placement}, {self.retention}"

    def engine(self) -> dict[str, Any]:
        """Return the engine's settings, as a result file's header has them."""
        names = ("ranks", "tokens_per_rank", "placement", "retention", "block_size", "service")
        said: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.service == "modelled":
            said["latency"] = asdict(self.latency)
        return said
