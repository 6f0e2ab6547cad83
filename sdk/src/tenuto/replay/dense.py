"""Small block ids for large ones: recorders write 63-bit hashes. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tenuto.trace.model import Runs, Trace


def dense(traces: Sequence[Trace]) -> tuple[Trace, ...]:
    """Number the block ids of traces from 0 without gaps, so that each has a text of its own.

    Equal ids stay equal and others other, runs stay runs. Traces with `global` ids are
    numbered together, each other one by itself.
    """
    together = [trace for trace in traces if trace.block_scope == "global"]
    numbers = _Numbers(run for trace in together for run in _runs(trace))
    return tuple(
        _renumbered(trace, numbers if trace.block_scope == "global" else _Numbers(_runs(trace)))
        for trace in traces
    )


class _Numbers:
    def __init__(self, runs: Iterable[tuple[int, int]]) -> None:
        self._firsts: list[int] = []
        self._moves: list[int] = []
        count, end = 0, -1
        for first, length in sorted(set(runs)):
            if not self._firsts or first > end:
                self._firsts.append(first)
                self._moves.append(count - first)
                end = first
            count += max(0, first + length - end)
            end = max(end, first + length)

    def of(self, runs: Runs) -> Runs:
        return tuple(
            (first + self._moves[bisect_right(self._firsts, first) - 1], length)
            for first, length in runs
        )


def _runs(trace: Trace) -> Iterable[tuple[int, int]]:
    return (run for session in trace.sessions for turn in session.turns for run in turn.blocks)


def _renumbered(trace: Trace, numbers: _Numbers) -> Trace:
    return replace(
        trace,
        sessions=tuple(
            replace(
                session,
                turns=tuple(
                    replace(turn, blocks=numbers.of(turn.blocks)) for turn in session.turns
                ),
            )
            for session in trace.sessions
        ),
    )
