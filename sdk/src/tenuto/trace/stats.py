"""What a set of traces is like: how many calls, how long, how far apart, how alike. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tenuto.trace.counted import uncounted
from tenuto.trace.model import Session, Trace, Turn
from tenuto.trace.runs import shared
from tenuto.trace.seen import Seen

PERCENTILES = (10, 50, 90, 99)


@dataclass(slots=True)
class Sample:
    """Values of one kind, in the order in which they were met."""

    values: list[float] = field(default_factory=list[float])

    @property
    def total(self) -> float:
        """Their sum."""
        return math.fsum(self.values)

    def percentile(self, share: float) -> float:
        """Return a value that `share` percent are at or below (nearest rank); 0 for none."""
        if not self.values:
            return 0.0
        ordered = sorted(self.values)
        return ordered[max(0, math.ceil(share / 100 * len(ordered)) - 1)]


@dataclass(slots=True)
class Hits:
    """What a cache without end would have had, in the recorded order of the calls.

    A prompt is in the cache from when its call started. Block ids of scope `run` are shared
    within a trace, those of scope `global` among all.
    """

    blocks: int = 0
    hit_blocks: int = 0
    tokens: int = 0
    hit_tokens: int = 0

    @property
    def block_rate(self) -> float:
        """Share of the full blocks, as InferenceX counts it; 0 without blocks."""
        return self.hit_blocks / self.blocks if self.blocks else 0.0

    @property
    def token_rate(self) -> float:
        """Share of all prompt tokens; 0 without prompts."""
        return self.hit_tokens / self.tokens if self.tokens else 0.0


@dataclass(slots=True)
class TraceStats:
    """Figures of a set of traces.

    Attributes:
        traces: how many.
        sessions: how many, subagents included.
        calls: how many.
        forks: sessions with a parent.
        forking: traces with such a session.
        joined: forks that the parent waited for.
        turns: per session without a parent.
        fork_turns: per session with one.
        input_tokens: per call.
        output_tokens: per call.
        first_input_tokens: of the first call of a session without a parent.
        peak_tokens: longest prompt of a trace.
        fresh_tokens: per later call of a session: tokens behind what it shares with the
            session's call before.
        uncounted: calls whose tokens nobody counted; an output of unknown length is in no sample.
        gaps_s: seconds from an answer's end to the session's next call, by the answer's
            finish reason; overlapping calls have none.
        duration_s: of a trace, from its first call to its last answer.
        all: hits of every call.
        main: of sessions without a parent.
        subagents: of sessions with one.
    """

    traces: int = 0
    sessions: int = 0
    calls: int = 0
    forks: int = 0
    forking: int = 0
    joined: int = 0
    uncounted: int = 0
    turns: Sample = field(default_factory=Sample)
    fork_turns: Sample = field(default_factory=Sample)
    input_tokens: Sample = field(default_factory=Sample)
    output_tokens: Sample = field(default_factory=Sample)
    first_input_tokens: Sample = field(default_factory=Sample)
    peak_tokens: Sample = field(default_factory=Sample)
    fresh_tokens: Sample = field(default_factory=Sample)
    gaps_s: dict[str, Sample] = field(default_factory=lambda: defaultdict(Sample))
    duration_s: Sample = field(default_factory=Sample)
    all: Hits = field(default_factory=Hits)
    main: Hits = field(default_factory=Hits)
    subagents: Hits = field(default_factory=Hits)

    @property
    def input_per_output(self) -> float:
        """Prompt tokens for each token of an answer; 0 without answers."""
        written = self.output_tokens.total
        return self.input_tokens.total / written if written else 0.0


def stats(traces: Iterable[Trace]) -> TraceStats:
    """Return the figures of traces, taken one at a time: none is kept."""
    found, everywhere = TraceStats(), Seen()
    for trace in traces:
        found.traces += 1
        found.sessions += len(trace.sessions)
        found.calls += trace.requests
        found.uncounted += uncounted(trace)
        forks = [session for session in trace.sessions if session.parent is not None]
        found.forks += len(forks)
        found.forking += bool(forks)
        found.joined += sum(session.joined_before is not None for session in forks)
        for session in trace.sessions:
            _add_session(found, session, trace.block_size)
        _add_trace(found, trace, everywhere if trace.block_scope == "global" else Seen())
    return found


def _add_session(found: TraceStats, session: Session, block_size: int) -> None:
    is_root = session.parent is None
    (found.turns if is_root else found.fork_turns).values.append(len(session.turns))
    if is_root and session.turns:
        found.first_input_tokens.values.append(session.turns[0].input_tokens)
    last: Turn | None = None
    for turn in session.turns:
        found.input_tokens.values.append(turn.input_tokens)
        if turn.output_tokens or "output_tokens" not in turn.guessed:
            found.output_tokens.values.append(turn.output_tokens)
        if last is not None:
            kept = shared(last.blocks, turn.blocks) * block_size
            found.fresh_tokens.values.append(turn.input_tokens - kept)
            if turn.start_s >= last.end_s:
                reason = last.finish_reason or ""
                found.gaps_s[reason].values.append(turn.start_s - last.end_s)
        last = turn


def _add_trace(found: TraceStats, trace: Trace, seen: Seen) -> None:
    calls: Sequence[tuple[float, int, int]] = sorted(
        (turn.start_s, place, index)
        for place, session in enumerate(trace.sessions)
        for index, turn in enumerate(session.turns)
    )
    peak, end_s = 0, 0.0
    for _, place, index in calls:
        session = trace.sessions[place]
        turn = session.turns[index]
        hit, count = seen.prefix(turn.blocks), turn.block_count
        seen.add(turn.blocks)
        peak, end_s = max(peak, turn.input_tokens), max(end_s, turn.end_s)
        for hits in (found.all, found.main if session.parent is None else found.subagents):
            hits.blocks += count
            hits.hit_blocks += hit
            hits.tokens += turn.input_tokens
            hits.hit_tokens += hit * trace.block_size
    if calls:
        found.peak_tokens.values.append(peak)
        found.duration_s.values.append(end_s - calls[0][0])
