"""A dry run: what our placement would have computed, beside what vLLM's own did.

Nothing of a request or an answer is touched. The homes are those that the ledger remembers, as no
client is told of any: with several API processes each knows the part that it has heard.
"""

from __future__ import annotations

from tenuto_vllm.metrics import Counters
from tenuto_vllm.placement import Ledger


class Shadow:
    """Counts what was computed by vLLM's own choices, and what would have been by ours."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def served(
        self,
        session: str,
        tokens: int,
        now_s: float,
        *,
        ours: tuple[Ledger, int],
        stock: tuple[Ledger, int],
    ) -> None:
        """Count one prompt twice.

        Args:
            session: whose prompt it is.
            tokens: of the prompt.
            now_s: the time.
            ours: what the ranks would hold by our choices, and our rank.
            stock: what they hold by vLLM's, and the rank that served it.
        """
        uncached: list[int] = []
        for ledger, rank in (ours, stock):
            uncached.append(tokens - min(ledger.held(session, rank), tokens))
            ledger.begun(session, rank, tokens, now_s)
        self._counters.compute(stock[1], uncached[1])
        self._counters.imagine(*uncached, agrees=ours[1] == stock[1])
