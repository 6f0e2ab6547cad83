"""Which calls of a trace nobody counted the tokens of, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tenuto.trace.model import Trace


def uncounted(trace: Trace) -> int:
    """Return how many calls have a length that was guessed, or an output that is not known."""
    return sum(bool(turn.guessed) for session in trace.sessions for turn in session.turns)


def uncounted_note(traces: Iterable[Trace]) -> str | None:
    """Return a line about the calls that have no token counts; None when all have them."""
    count = calls = 0
    for trace in traces:
        count += uncounted(trace)
        calls += trace.requests
    return note_of(count, calls)


def note_of(count: int, calls: int) -> str | None:
    """Return the line for `count` of `calls` calls; None for none."""
    if not count:
        return None
    return (
        f"{count:,} of {calls:,} calls have no token counts (guessed from bytes; an output of "
        'unknown length is 0): ask for them with stream_options={"include_usage": True}'
    )
