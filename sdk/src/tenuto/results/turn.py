"""What one turn of a replayed or simulated trace met."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_OVERTAKING = 0.05


@dataclass(frozen=True, slots=True)
class TurnResult:
    """What one turn met at the server.

    Attributes:
        trace: id of the trace that the turn belongs to.
        session: label of the session, unique in its trace.
        agent: role name of the session.
        turn: index in the session, from 0.
        rank: data-parallel rank that served it; None when the server did not say.
        prompt_tokens: length of the prompt, in tokens, by the server's count.
        cached_tokens: how many of them came from the rank's cache.
        output_tokens: tokens of the answer.
        due_s: when the turn was ready to be called, in seconds on the measurement's clock:
            the turn before it had ended, and the tool's wait after that was over.
        start_s: when it was called, on the same clock.
        first_token_s: when its first token came; `end_s` for an answer without one.
        end_s: when the answer was complete.
        repeat: index of the repeat, from 0.
        queue_s: seconds that it waited at the server; None where that is not known.
        reachable_tokens: prompt tokens that caches without end on every rank would have had
            when it was called; None where that was not followed.
        rank_reachable_tokens: the same of a cache without end on the rank that served it.
        error: kind of the failure, such as `APITimeoutError`; None on success.
        cached_known: whether the server said how many tokens came from the cache; vLLM says
            so of a call that found some, and only with `--enable-prompt-tokens-details`.
    """

    trace: str
    session: str
    agent: str
    turn: int
    rank: int | None
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    due_s: float
    start_s: float
    first_token_s: float
    end_s: float
    repeat: int = 0
    queue_s: float | None = None
    reachable_tokens: int | None = None
    rank_reachable_tokens: int | None = None
    error: str | None = None
    cached_known: bool = True

    @property
    def ttft_s(self) -> float:
        """Seconds from the call to the answer's first token."""
        return self.first_token_s - self.start_s

    @property
    def uncached_tokens(self) -> int:
        """Prompt tokens that a rank had to compute."""
        return self.prompt_tokens - self.cached_tokens


def cached_is_known(turns: Iterable[TurnResult]) -> bool:
    """Return whether 0 cached tokens mean that nothing was found, rather than not said.

    It is so where any answer said how many, and where none could have found any.
    """
    good = [turn for turn in turns if turn.error is None]
    return any(turn.cached_known for turn in good) or all(
        turn.reachable_tokens == 0 for turn in good
    )


def warm_turns(turns: Iterable[TurnResult], *, block_size: int) -> int:
    """Return how many turns found over a block more than had been sent before them.

    Somebody else had put it there: another run of the same prompts, or a call that failed. A few
    find more because calls that are sent at once overtake each other on their way, so up to 5 %
    of the turns, or of all prompt tokens, are none.
    """
    turns = list(turns)
    warm = [
        turn
        for turn in turns
        if turn.reachable_tokens is not None
        and turn.cached_tokens > turn.reachable_tokens + block_size
    ]
    more = sum(turn.cached_tokens - (turn.reachable_tokens or 0) for turn in warm)
    few = len(warm) <= _OVERTAKING * len(turns)
    if few or more <= _OVERTAKING * sum(turn.prompt_tokens for turn in turns):
        return 0
    return len(warm)
