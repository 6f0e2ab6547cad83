"""The traces that `tenuto replay` plays: read, chosen, scaled, and told from what cannot be."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tenuto.replay import dense
from tenuto.replay.text import most_blocks
from tenuto.trace import Trace, read_all, scale, uncounted_note


def chosen_traces(given: argparse.Namespace) -> list[Trace]:
    """Return what is to be played.

    Raises:
        ValueError: nothing, or what has no prompts of its own after the scaling.
        OSError: a file cannot be read.
    """
    traces: list[Trace] = []
    for trace in read_all(given.traces):
        if given.limit is not None and len(traces) == given.limit:
            break
        if not given.id or trace.id in given.id:
            traces.append(_scaled(trace, given.factor))
    if not traces:
        raise ValueError("no trace in what was given")
    if len({trace.id for trace in traces}) < len(traces):
        raise ValueError("two traces have one id")
    _check(traces, given)
    if note := uncounted_note(traces):
        print(f"tenuto replay: {note}", file=sys.stderr)
    return traces


def _scaled(trace: Trace, factor: int) -> Trace:
    try:
        return scale(trace, factor)
    except ValueError as error:
        raise ValueError(f"--factor {factor}: {error}") from error


def _check(traces: Sequence[Trace], given: argparse.Namespace) -> None:
    vocab = given.vocab if given.prompt_form == "tokens" else None
    for trace in dense(traces):
        size = trace.block_size
        runs = [run for session in trace.sessions for turn in session.turns for run in turn.blocks]
        last = max((first + length for first, length in runs), default=0)
        if last > (most := most_blocks(size, vocab=vocab)):
            way_out = f"take a smaller --factor than {given.factor}"
            raise ValueError(
                f"{last:,} different blocks need prompts of their own, and blocks of {size} tokens "
                f"have {most:,}: {way_out if given.factor > 1 else 'the blocks are too small'}"
            )
