"""The turns of a session from its calls: which attempt counts, how long its prompt was. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from tenuto.trace.draft import Draft, Say
from tenuto.trace.event import MOST_TOKENS, CallEvent, Guessed, RunEvent
from tenuto.trace.model import Turn
from tenuto.trace.order import Call, gaps_in, is_answered
from tenuto.trace.recut import BLOCK_SIZE, recut
from tenuto.trace.runs import Runs, merged, taken
from tenuto.trace.times import Times, span_of, tools_of

# Where no server said how long a text is: four bytes of it are about a token.
_TOKENS_PER_BYTE = 0.25
_GUESSED: tuple[Guessed, ...] = ("input_tokens", "output_tokens")


class Sizes(NamedTuple):
    """How a run's prompts were cut.

    Attributes:
        block_size: tokens in a block.
        block_bytes: bytes in a block, where text was cut; else None.
        tokens_per_byte: of the run's prompts, where text was cut.
        output_tokens_per_byte: of the run's answers, where their text was seen.
        scope: where an id means the same.
    """

    block_size: int
    block_bytes: int | None
    tokens_per_byte: float
    output_tokens_per_byte: float
    scope: Literal["run", "global"]


def sizes_of(about: RunEvent | None, calls: Sequence[Call], say: Say) -> Sizes:
    """Return how a run's prompts were cut: as most of its calls say.

    Text has as many tokens for its bytes as the server counted in the run:
    `sum(input_tokens) / sum(input_bytes)`, and the same of the answers.
    """
    events = [call.event for call in calls]
    size = about.block_size if about else None
    said = Counter((e.block_size, e.block_bytes) for e in events if e.block_size or e.block_bytes)
    if size is None and said:
        size, block_bytes = said.most_common(1)[0][0]
    else:
        block_bytes = None
    size = size or BLOCK_SIZE
    cut = [e for e in events if e.blocks]
    is_global = bool(cut) and all(e.block_scope == "global" for e in cut)
    for line, event in calls:
        if _is_foreign(event, size, block_bytes):
            say(line, "its blocks have another size than most of the run's; left without blocks")
    return Sizes(
        size,
        block_bytes,
        _ratio((e.input_tokens, e.input_bytes) for e in events),
        _ratio((e.output_tokens, e.output_bytes) for e in events),
        "global" if is_global else "run",
    )


def turns_of(draft: Draft, times: Times, sizes: Sizes, say: Say) -> tuple[Turn, ...]:
    """Return one turn for each turn number; of several attempts the last that was answered."""
    for below, tries in gaps_in(draft.turns):
        what = f"session {draft.label} goes from turn {below} to turn {tries[0].event.turn}"
        say(tries[0].line, f"{what}; what is between is missing")
    return tuple(_turn(_counted(tries), times, sizes, say) for tries in draft.turns)


def _counted(tries: Sequence[Call]) -> Call:
    return ([call for call in tries if is_answered(call)] or tries)[-1]


def _ratio(counts: Iterable[tuple[int | None, int | None]]) -> float:
    known = [(tokens, size) for tokens, size in counts if tokens and size]
    if not known:
        return _TOKENS_PER_BYTE
    return sum(tokens for tokens, _ in known) / sum(size for _, size in known)


def _turn(call: Call, times: Times, sizes: Sizes, say: Say) -> Turn:
    event = call.event
    span = span_of(call, times, say)
    tokens, output = event.input_tokens, event.output_tokens
    guessed = set(event.guessed)
    if tokens is None:
        guessed.add("input_tokens")
        tokens = round((event.input_bytes or 0) * sizes.tokens_per_byte)
    if output is None:
        guessed.add("output_tokens")
        output = round((event.output_bytes or 0) * sizes.output_tokens_per_byte)
    blocks = _blocks(event, tokens, sizes)
    least = sum(length for _, length in blocks) * sizes.block_size
    if tokens < least and event.input_tokens is not None:
        say(call.line, f"{tokens} input tokens are fewer than its blocks have; taken as {least}")
    return Turn(
        blocks=blocks,
        input_tokens=max(tokens, least),
        output_tokens=output,
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
        guessed=tuple(name for name in _GUESSED if name in guessed),
    )


def _blocks(event: CallEvent, tokens: int, sizes: Sizes) -> Runs:
    if _is_foreign(event, sizes.block_size, sizes.block_bytes):
        return ()
    blocks = merged(event.blocks)
    if sizes.block_bytes is None:
        return taken(blocks, MOST_TOKENS // sizes.block_size)
    # A prompt may have fewer tokens for its bytes than the run's prompts together have.
    made = recut(blocks, block_bytes=sizes.block_bytes, tokens_per_byte=sizes.tokens_per_byte)
    return taken(made, tokens // sizes.block_size)


def _is_foreign(event: CallEvent, size: int, block_bytes: int | None) -> bool:
    if not event.blocks:
        return False
    if block_bytes is not None:
        return event.block_bytes != block_bytes
    return event.block_bytes is not None or event.block_size not in {None, size}
