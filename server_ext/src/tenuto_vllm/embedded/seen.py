"""What a placement may know of the calls before: what clients echo, and our own ledger. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tenuto_vllm.embedded.latency import Latency
from tenuto_vllm.embedded.placements import Asking
from tenuto_vllm.embedded.recent import Recent
from tenuto_vllm.embedded.stock import RankLoad
from tenuto_vllm.placement import Ledger, Pending

if TYPE_CHECKING:
    from tenuto_vllm.embedded.core import Call

_HOMES = 1_000_000
# A prompt by which the speed of a rank is told.
_SAMPLE = 10_000


class Seen:
    """Homes of sessions and runs, and what our placement has seen.

    Args:
        ranks: how many.
        capacity: tokens of each rank's cache.
        latency: how long prefill takes.
    """

    def __init__(self, ranks: int, capacity: int, latency: Latency) -> None:
        self._ranks = ranks
        self._count = 0
        self._recent = Recent()
        self._ledger = Ledger(ranks, capacity)
        self._pending = Pending(_SAMPLE / max(latency.prefill(_SAMPLE, _SAMPLE), 1e-9))
        # What clients echo: the rank of a session's last answer, and of a run's first.
        self._homes: OrderedDict[str, int] = OrderedDict()
        self._run_homes: OrderedDict[str, int] = OrderedDict()

    def asking(
        self,
        call: Call,
        loads: Callable[[], Sequence[RankLoad]],
        found: Callable[[int], int],
        now_s: float,
    ) -> Asking:
        """Return what a placement may know of a call."""
        self._count += 1
        return Asking(
            session=call.session,
            run=call.run,
            user=call.user,
            parent=call.parent,
            turn=call.turn,
            inherits=call.inherits,
            keep=call.keep,
            count=self._count - 1,
            home=self._homes.get(call.session),
            run_home=self._run_homes.get(call.run),
            parent_home=self._homes.get(call.parent),
            loads=loads,
            recent=lambda: self._recent.at(now_s, self._ranks),
            ledger=self._ledger,
            pending=self._pending,
            now_s=now_s,
            found=found,
        )

    def sent(self, call: Call, rank: int, now_s: float) -> int:
        """Note that a call goes to a rank; return the tokens it has most likely to compute."""
        if not call.session:
            return 0
        if call.session not in self._homes:
            self._recent = self._recent.placed(rank, now_s, self._ranks)
        self._homes[call.session] = rank
        if call.run not in self._run_homes:
            self._run_homes[call.run] = rank
        for homes in (self._homes, self._run_homes):
            if len(homes) > _HOMES:
                homes.popitem(last=False)
        expected = max(0, call.prompt_tokens - self._held(call, rank))
        self._ledger.sent(call.session, rank, call.turn, now_s)
        self._pending.begin(rank, expected)
        return expected

    def begun(self, call: Call, rank: int, expected: int, now_s: float) -> None:
        """Note that a call's first token is out."""
        self._pending.end(rank, expected)
        found = call.prompt_tokens - expected if call.session else 0
        self._ledger.begun(call.session, rank, call.prompt_tokens, now_s, found)

    def _held(self, call: Call, rank: int) -> int:
        """Return the tokens of a call's context that a rank most likely has."""
        if call.turn == 0 and call.inherits and rank == self._homes.get(call.parent):
            return self._ledger.held(call.parent, rank)
        return self._ledger.held(call.session, rank, call.keep)

    def gave_up(self, rank: int, expected: int) -> None:
        """Note that a call was taken back before its first token."""
        self._pending.end(rank, expected)

    def ended(self, call: Call) -> None:
        """Note that a call's answer is complete."""
        if call.is_final:
            self._ledger.ended(call.session)
