"""How long prefill and decode take. Pure."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Latency:
    """A linear model of one rank; `tenuto fit` takes it from a result file.

    prefill = `overhead_s` + `uncached_s` * uncached tokens + `context_s` * uncached tokens *
    prompt tokens; decode = output tokens after the first * (`decode_s` + `crowd_s` * requests
    that decode beside it).

    Attributes:
        overhead_s: of each request, seconds.
        uncached_s: seconds for each uncached prompt token.
        context_s: seconds for each pair of an uncached and a prompt token: attention.
        decode_s: seconds for each output token of a request alone.
        crowd_s: seconds that each other request adds to it.

    Raises:
        ValueError: a value is negative or no number.
    """

    overhead_s: float = 0.0
    uncached_s: float = 1 / 20_000
    context_s: float = 0.0
    decode_s: float = 1 / 1_000
    crowd_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is no duration."""
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 <= value < math.inf:
                raise ValueError(f"{field.name} is {value}; it must be 0 or more seconds")

    def prefill(self, uncached_tokens: int, prompt_tokens: int) -> float:
        """Return seconds from admission to the first token."""
        per_token = self.uncached_s + self.context_s * prompt_tokens
        return self.overhead_s + uncached_tokens * per_token

    def decode(self, output_tokens: int, beside: int) -> float:
        """Return seconds from the first token to the last, with `beside` other requests."""
        return max(0, output_tokens - 1) * (self.decode_s + self.crowd_s * beside)

    @classmethod
    def from_file(cls, path: str | Path) -> Latency:
        """Read a model that `to_file` wrote.

        Raises:
            ValueError: it is not one.
            OSError: it cannot be read.
        """
        given = json.loads(Path(path).read_text(encoding="utf-8"))
        try:
            return cls(**{name: float(value) for name, value in given.items()})
        except (AttributeError, TypeError) as error:
            raise ValueError(f"{Path(path).name} is no latency model: {error}") from error

    def to_file(self, path: str | Path) -> None:
        """Write the model as JSON."""
        Path(path).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
