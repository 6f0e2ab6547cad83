"""The turns of a session from its calls: which attempt counts, how long its prompt was. Pure."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

from tenuto.trace.draft import Call, Draft, Say
from tenuto.trace.event import CallEvent, RunEvent
from tenuto.trace.model import Turn
from tenuto.trace.runs import merged
from tenuto.trace.times import Times, span_of, tools_of

# Where no server said how long a prompt is: four bytes of text are about a token.
_TOKENS_PER_BYTE = 0.25
_BLOCK_SIZE = 64


class Sizes(NamedTuple):
    """How a run's prompts were cut.

    Attributes:
        block_size: tokens in a block.
        block_bytes: bytes in a block, where text was cut; else None.
        tokens_per_byte: of the run's prompts, where text was cut.
        scope: where an id means the same.
    """

    block_size: int
    block_bytes: int | None
    tokens_per_byte: float
    scope: Literal["run", "global"]


def sizes_of(about: RunEvent | None, calls: Sequence[Call], say: Say) -> Sizes:
    """Return how a run's prompts were cut: as most of its calls say.

    A block of text has as many tokens as the run's prompts have for its bytes, by the
    server's count: `round(block_bytes * sum(input_tokens) / sum(input_bytes))`, at least 1.
    """
    events = [call.event for call in calls]
    size = about.block_size if about else None
    said = Counter((e.block_size, e.block_bytes) for e in events if e.block_size or e.block_bytes)
    if size is None and said:
        size, block_bytes = said.most_common(1)[0][0]
    else:
        block_bytes = None
    counted = [e for e in events if e.input_tokens and e.input_bytes]
    ratio = _TOKENS_PER_BYTE
    if counted:
        ratio = sum(e.input_tokens or 0 for e in counted) / sum(e.input_bytes or 0 for e in counted)
    if size is None:
        size = _BLOCK_SIZE if block_bytes is None else max(1, round(block_bytes * ratio))
    cut = [e for e in events if e.blocks]
    is_global = bool(cut) and all(e.block_scope == "global" for e in cut)
    for line, event in calls:
        if _is_foreign(event, size, block_bytes):
            say(line, "its blocks have another size than most of the run's; left without blocks")
    return Sizes(size, block_bytes, ratio, "global" if is_global else "run")


def turns_of(draft: Draft, times: Times, sizes: Sizes, say: Say) -> tuple[Turn, ...]:
    """Return one turn for each turn number; of several attempts the last that was answered."""
    turns: list[Turn] = []
    expected = 0
    for number, attempts in itertools.groupby(draft.calls, key=lambda call: call.event.turn):
        tried = list(attempts)
        if number != expected:
            what = f"session {draft.label} goes from turn {expected - 1} to turn {number}"
            say(tried[0].line, f"{what}; what is between is missing")
        expected = number + 1
        turns.append(_turn(_counted(tried), times, sizes, say))
    return tuple(turns)


def numbers_of(draft: Draft) -> list[int]:
    """Return the turn numbers of a session as its lines have them, in order."""
    return sorted({call.event.turn for call in draft.calls})


def _counted(attempts: Sequence[Call]) -> Call:
    answered = [c for c in attempts if c.event.error is None and c.event.end_s is not None]
    return (answered or attempts)[-1]


def _turn(call: Call, times: Times, sizes: Sizes, say: Say) -> Turn:
    event = call.event
    span = span_of(call, times, say)
    foreign = _is_foreign(event, sizes.block_size, sizes.block_bytes)
    blocks = () if foreign else merged(event.blocks)
    tokens = event.input_tokens
    if tokens is None:
        tokens = round((event.input_bytes or 0) * sizes.tokens_per_byte)
    least = sum(length for _, length in blocks) * sizes.block_size
    if tokens < least and event.input_tokens is not None and sizes.block_bytes is None:
        say(call.line, f"{tokens} input tokens are fewer than its blocks have; taken as {least}")
    return Turn(
        blocks=blocks,
        input_tokens=max(tokens, least),
        output_tokens=event.output_tokens or 0,
        start_s=span.start_s,
        end_s=span.end_s,
        first_token_s=span.first_token_s,
        cached_tokens=event.cached_tokens,
        phase=event.phase,
        finish_reason=event.finish_reason,
        attempt=event.attempt,
        model_name=event.model_name,
        tools=tools_of(event, times),
        extra=event.extra,
    )


def _is_foreign(event: CallEvent, size: int, block_bytes: int | None) -> bool:
    if not event.blocks:
        return False
    if block_bytes is not None:
        return event.block_bytes != block_bytes
    return event.block_size is not None and event.block_size != size
