"""Make a trace fit a smaller server without changing what is shared with what. Pure."""

from __future__ import annotations

from dataclasses import replace

from tenuto.trace.model import Trace, Turn


def scale(trace: Trace, factor: int) -> Trace:
    """Divide block size and token counts by `factor`.

    Block ids, order, forks and times stay, so each pair of prompts shares as many
    blocks as before, and the shared part of each prompt stays within one block of
    the recorded share. A longer-than-zero output keeps at least one token.

    Args:
        trace: the trace to scale.
        factor: a divisor of the block size, >= 1.

    Raises:
        ValueError: when `factor` does not divide the block size.
    """
    if factor < 1 or trace.block_size % factor:
        divisors = [n for n in range(1, trace.block_size + 1) if trace.block_size % n == 0]
        message = (
            f"factor {factor} does not divide the block size {trace.block_size} of trace "
            f"{trace.id}; use one of {divisors}"
        )
        raise ValueError(message)
    block_size = trace.block_size // factor
    sessions = tuple(
        replace(session, turns=tuple(_scaled(turn, factor, block_size) for turn in session.turns))
        for session in trace.sessions
    )
    return replace(trace, block_size=block_size, sessions=sessions)


def _scaled(turn: Turn, factor: int, block_size: int) -> Turn:
    return replace(
        turn,
        input_tokens=max(len(turn.block_ids) * block_size, turn.input_tokens // factor),
        output_tokens=max(min(1, turn.output_tokens), turn.output_tokens // factor),
    )
