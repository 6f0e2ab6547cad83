"""What a cache without end would have had, for results that come in any order. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tenuto.replay.reach import Reach
from tenuto.results import TurnResult
from tenuto.trace.model import Trace, Turn


@dataclass(slots=True)
class _Sent:
    trace: Trace
    turn: Turn
    result: TurnResult | None = None


class Reached:
    """Passes results on in the order in which their calls were sent, with what was reachable.

    The rank of a call is known from its answer only, so that a result waits for the answers
    to all calls before its own. Calls that failed are passed on as they are: nobody knows
    what they left in a cache.

    Args:
        reach: what has been sent where; None leaves results as they are.
        tell: takes the results.
    """

    def __init__(self, reach: Reach | None, tell: Callable[[TurnResult], None]) -> None:
        self._reach = reach
        self._tell = tell
        # In the order of sending.
        self._sent: dict[int, _Sent] = {}

    def send(self, number: int, trace: Trace, turn: Turn) -> None:
        """Note that call `number` is sent."""
        self._sent[number] = _Sent(trace, turn)

    def done(self, number: int, result: TurnResult) -> None:
        """Note the result of call `number`."""
        self._sent[number].result = result
        while self._sent:
            first = next(iter(self._sent))
            if self._sent[first].result is None:
                return
            self._pass_on(self._sent.pop(first))

    def flush(self) -> None:
        """Pass on what there is, though calls before it have no result."""
        for sent in self._sent.values():
            self._pass_on(sent)
        self._sent = {}

    def _pass_on(self, sent: _Sent) -> None:
        trace, turn, result = sent.trace, sent.turn, sent.result
        if result is None:
            return
        # Where the server counts other tokens, the blocks of the trace are not its.
        if (
            self._reach is not None
            and result.error is None
            and result.prompt_tokens == max(1, turn.input_tokens)
        ):
            reachable, by_rank = self._reach.sent(
                trace.space, turn.blocks, turn.input_tokens, trace.block_size, result.rank
            )
            result = replace(result, reachable_tokens=reachable, rank_reachable_tokens=by_rank)
        self._tell(result)
