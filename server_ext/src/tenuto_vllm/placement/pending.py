"""How fast the ranks compute prompts, and what this process has sent them to compute."""

from __future__ import annotations

from collections.abc import Sequence

# Until something was measured.
DEFAULT_TOKENS_PER_S = 8_000.0
# Shorter prefills are mostly overhead.
_LEAST_TOKENS = 256
_KEEP = 0.9


class Pending:
    """Prompt tokens on their way to each rank; for one event loop, so without a lock.

    Attributes:
        tokens_per_s: prefill speed of a rank, as far as it was measured.
    """

    def __init__(self, tokens_per_s: float = DEFAULT_TOKENS_PER_S) -> None:
        self.tokens_per_s = tokens_per_s
        self._tokens = 0.0
        self._seconds = 0.0
        self._by_rank: dict[int, int] = {}

    def counts(self, ranks: int) -> Sequence[float]:
        """Return the tokens of each rank, shape (ranks,)."""
        known = self._by_rank.get
        return [known(rank, 0) for rank in range(ranks)]

    def wait_s(self, rank: int) -> float:
        """Return how long a rank takes for what is on its way there."""
        return self._by_rank.get(rank, 0) / self.tokens_per_s

    def begin(self, rank: int, tokens: int) -> None:
        """Count a prompt, until `end` is called with the same."""
        self._by_rank[rank] = self._by_rank.get(rank, 0) + tokens

    def end(self, rank: int, tokens: int) -> None:
        """Take a prompt back: its first token is out, or it was given up."""
        left = self._by_rank.get(rank, 0) - tokens
        if left > 0:
            self._by_rank[rank] = left
        else:
            self._by_rank.pop(rank, None)

    def took(self, tokens: int, seconds: float) -> None:
        """Learn from a prompt that had its rank to itself.

        Args:
            tokens: that had to be computed.
            seconds: from the request to the first token.
        """
        if tokens < _LEAST_TOKENS or seconds <= 0:
            return
        self._tokens = _KEEP * self._tokens + tokens
        self._seconds = _KEEP * self._seconds + seconds
        self.tokens_per_s = self._tokens / self._seconds
