"""The clock of a run: where it begins, and what to do with times that cannot be. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tenuto.trace.draft import Say
from tenuto.trace.event import CallEvent, RunEvent, ToolSpan
from tenuto.trace.order import Call


class Times(NamedTuple):
    """A run's clock.

    Attributes:
        base_s: to be taken off each time.
        first_s: earliest start that can be, before that.
    """

    base_s: float
    first_s: float


class Span(NamedTuple):
    """When a call was made, had its first token and ended, in seconds since the run's start."""

    start_s: float
    first_token_s: float | None
    end_s: float


def times_of(about: RunEvent | None, calls: Sequence[Call]) -> Times:
    """Return the clock of a run: a recorded one begins with its first call.

    Another format's times count from the start of the run by its own account, and stay as
    they are, to the last digit.
    """
    first_s = min((c.event.start_s for c in calls if c.event.start_s >= 0), default=0.0)
    return Times(0.0, first_s) if about and about.source else Times(first_s, first_s)


def span_of(call: Call, times: Times, say: Say) -> Span:
    """Return a call's times in order; tell those that had to be moved."""
    line, event = call
    start_s = event.start_s
    if start_s < 0:
        say(line, f"starts at {start_s:g} s, before there was time; taken as the run's start")
        start_s = times.first_s
    end_s = _end(event, start_s)
    if end_s < start_s:
        say(line, f"ends {start_s - end_s:g} s before it starts; taken as ending there")
        end_s = start_s
    first_s = event.first_token_s
    if first_s is not None and not start_s <= first_s <= end_s:
        say(line, f"first token at {first_s:g} s is not between start and end; moved there")
        first_s = min(max(first_s, start_s), end_s)
    since = times.base_s
    return Span(
        _since(start_s, since),
        None if first_s is None else _since(first_s, since),
        _since(end_s, since),
    )


def tools_of(event: CallEvent, times: Times) -> tuple[ToolSpan, ...]:
    """Return a call's tools on the run's clock."""
    if not times.base_s:
        return event.tools
    return tuple(
        tool.model_copy(
            update={
                "start_s": None if tool.start_s is None else _since(tool.start_s, times.base_s),
                "end_s": None if tool.end_s is None else _since(tool.end_s, times.base_s),
            }
        )
        for tool in event.tools
    )


def _end(event: CallEvent, start_s: float) -> float:
    if event.end_s is not None:
        return event.end_s
    return start_s if event.first_token_s is None else max(start_s, event.first_token_s)


def _since(at_s: float, base_s: float) -> float:
    # A float of 1970's seconds has no more than these digits.
    return round(at_s - base_s, 6) if base_s else at_s
