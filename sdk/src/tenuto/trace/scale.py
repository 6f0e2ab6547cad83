"""Make a trace fit a smaller server without changing what is shared with what. Pure."""

from __future__ import annotations

from dataclasses import replace

from tenuto.trace.model import Trace, Turn


def scale(trace: Trace, factor: int, *, times: float = 1.0) -> Trace:
    """Divide block size and token counts by `factor`, and multiply times by `times`.

    Block ids, order and forks stay, so each pair of prompts shares as many blocks as
    before, and the shared part of each prompt stays within one block of the recorded
    share. A longer-than-zero output keeps at least one token. What only the source has
    a word for (`extra`) is dropped: it is about the lengths and times that it had.

    Args:
        trace: the trace to scale.
        factor: a divisor of the block size, >= 1.
        times: > 0.

    Raises:
        ValueError: when `factor` does not divide the block size, or `times` is not positive.
    """
    if factor < 1 or trace.block_size % factor:
        divisors = [n for n in range(1, trace.block_size + 1) if trace.block_size % n == 0]
        message = (
            f"factor {factor} does not divide the block size {trace.block_size} of trace "
            f"{trace.id}; use one of {divisors}"
        )
        raise ValueError(message)
    if not times > 0:
        message = f"times are multiplied by {times}, which must be more than 0"
        raise ValueError(message)
    if factor == 1 and times == 1.0:
        return trace
    size = trace.block_size // factor
    sessions = tuple(
        replace(
            session,
            turns=tuple(_scaled(turn, factor, size, times) for turn in session.turns),
            extra=None,
        )
        for session in trace.sessions
    )
    return replace(trace, block_size=size, sessions=sessions, extra=None)


def _scaled(turn: Turn, factor: int, block_size: int, times: float) -> Turn:
    cached = turn.cached_tokens
    return replace(
        turn,
        input_tokens=max(turn.block_count * block_size, turn.input_tokens // factor),
        output_tokens=max(min(1, turn.output_tokens), turn.output_tokens // factor),
        cached_tokens=None if cached is None else cached // factor,
        start_s=turn.start_s * times,
        end_s=turn.end_s * times,
        first_token_s=None if turn.first_token_s is None else turn.first_token_s * times,
        tools=tuple(
            tool.model_copy(
                update={
                    "start_s": None if tool.start_s is None else tool.start_s * times,
                    "end_s": None if tool.end_s is None else tool.end_s * times,
                }
            )
            for tool in turn.tools
        ),
        extra=None,
    )
