"""Requests on their way, and what is learnt from them."""

from __future__ import annotations

import time

from tenuto_vllm.asgi.in_flight import InFlight
from tenuto_vllm.asgi.ranks import Ranks
from tenuto_vllm.asgi.shadow import Shadow
from tenuto_vllm.asgi.visit import Visit
from tenuto_vllm.metrics import Counters
from tenuto_vllm.placement import Pending


class Traffic:
    """Holds the load that this process causes; for one event loop.

    Args:
        ranks: whose ledger learns.
        counters: of this process.
        shadow: in a dry run.
    """

    def __init__(self, ranks: Ranks, counters: Counters, shadow: Shadow | None) -> None:
        self.in_flight = InFlight()
        self.pending = Pending()
        self._ranks = ranks
        self._counters = counters
        self._shadow = shadow

    def begin(self, visit: Visit) -> None:
        """Count a request that is on its way."""
        rank, ledger = visit.placement.rank, self._ranks.ledger
        self.in_flight.begin(rank)
        self.pending.begin(rank, visit.expected)
        if visit.token is not None and ledger.ranks > 1:
            ledger.sent(visit.session, rank, visit.turn, visit.begun_s)

    def measured(self, visit: Visit, expected: int, tokens: int) -> int:
        """Replace what was expected of a prompt: its length is known.

        Args:
            visit: of the request.
            expected: tokens that are pending for it.
            tokens: length of its prompt.

        Returns:
            The tokens that are pending for it from here on.
        """
        rank, left = visit.placement.rank, max(0, tokens - visit.held)
        self.pending.end(rank, expected)
        self.pending.begin(rank, left)
        return left

    def served(self, visit: Visit | None, rank: int, tokens: int, *, is_stream: bool) -> None:
        """Learn from the first bytes of an answer.

        Args:
            visit: of the request; None for one that vLLM placed.
            rank: that served it.
            tokens: length of its prompt.
            is_stream: they are the first token's, and not the whole answer's.
        """
        ledger, now_s = self._ranks.ledger, time.monotonic()
        if ledger.ranks == 1:
            return
        if visit is None or visit.token is None:
            ledger.passed(rank, tokens, now_s)
            if self._shadow is not None:
                self._ranks.stock.passed(rank, tokens, now_s)
            self._counters.compute(rank, tokens)
            return
        session, chosen = visit.session, visit.placement.rank
        if self._shadow is not None:
            ours, stock = (ledger, chosen), (self._ranks.stock, rank)
            self._shadow.served(session, tokens, now_s, ours=ours, stock=stock)
            return
        found = min(visit.held if chosen == rank else ledger.held(session, rank), tokens)
        ledger.begun(session, rank, tokens, now_s, found)
        self._counters.compute(rank, tokens - found)
        if is_stream and chosen == rank and self.in_flight.of(rank) == 1:
            self.pending.took(tokens - found, now_s - visit.begun_s)

    def over(self, visit: Visit) -> None:
        """Take back what `begin` counted as running."""
        self.in_flight.end(visit.placement.rank)
        if visit.token is not None:
            self._ranks.ledger.over(visit.session)
