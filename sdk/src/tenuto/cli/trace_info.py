"""The figures of traces as a table, as plots of characters and as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tenuto.trace.counted import note_of
from tenuto.trace.stats import PERCENTILES, Hits, Sample, TraceStats

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_BARS = 12
_LABEL_WIDTH = 22


class Listed(NamedTuple):
    """A trace by its name, with how many sessions and calls it has."""

    id: str
    sessions: int
    calls: int


def samples_of(found: TraceStats) -> list[tuple[str, Sample]]:
    """Return what is counted, with its unit, in the order of the table."""
    gaps = sorted(found.gaps_s.items(), key=lambda one: -len(one[1].values))
    return [
        ("turns / session", found.turns),
        ("turns / subagent", found.fork_turns),
        ("input tokens / call", found.input_tokens),
        ("output tokens / call", found.output_tokens),
        ("first input tokens", found.first_input_tokens),
        ("peak input tokens", found.peak_tokens),
        ("fresh tokens / turn", found.fresh_tokens),
        *((f"gap s, {reason or 'no reason'}", sample) for reason, sample in gaps),
        ("duration s / trace", found.duration_s),
    ]


def table(found: TraceStats) -> str:
    """Return the figures as lines of text."""
    heads = [f"p{share}" for share in PERCENTILES]
    note = note_of(found.uncounted, found.calls)
    about = "about " if note else ""
    written = f"{found.output_tokens.total:,.0f} output tokens, {found.input_per_output:.0f}:1"
    if found.calls and not found.output_tokens.values:
        written = "output tokens unknown"
    lines = [
        f"{found.traces:,} traces, {found.sessions:,} sessions, {found.calls:,} calls",
        f"{found.forks:,} forks ({found.joined:,} waited for) in {found.forking:,} traces",
        f"{about}{found.input_tokens.total:,.0f} input tokens, {written}",
        *filter(None, [note]),
        "",
        _row("", "count", *heads, "max"),
    ]
    lines += [
        _row(
            name,
            f"{len(sample.values):,}",
            *(_short(sample.percentile(share)) for share in PERCENTILES),
            _short(sample.percentile(100)),
        )
        for name, sample in samples_of(found)
        if sample.values
    ]
    lines += ["", _row("cache without end", "blocks", "hit", "tokens", "hit")]
    for name, hits in _hits(found):
        if hits.tokens:
            lines.append(
                _row(
                    name,
                    f"{hits.blocks:,}",
                    f"{hits.block_rate:.2%}",
                    f"{hits.tokens:,}",
                    f"{hits.token_rate:.2%}",
                )
            )
    return "\n".join(lines)


def listing(traces: Sequence[Listed], most: int | None) -> str:
    """Return the traces by name, at most so many of them; nothing for none."""
    if not traces:
        return ""
    shown = traces[:most]
    width = max(_LABEL_WIDTH, *(len(one.id) for one in shown))
    lines = [f"{'trace'.ljust(width)} {'sessions':>8} {'calls':>8}"]
    lines += [f"{one.id.ljust(width)} {one.sessions:>8,} {one.calls:>8,}" for one in shown]
    if more := len(traces) - len(shown):
        lines.append(f"and {more:,} more (--ids)")
    return "\n".join(lines)


def plot(found: TraceStats, *, width: int = 80) -> str:
    """Return how lengths and gaps are spread, as bars of characters.

    Args:
        found: the figures.
        width: columns of the terminal.
    """
    gaps = Sample([value for sample in found.gaps_s.values() for value in sample.values])
    parts = [
        _histogram("input tokens / call", found.input_tokens, width),
        _histogram("fresh tokens / turn", found.fresh_tokens, width),
        _histogram("gap, seconds", gaps, width),
    ]
    return "\n\n".join(filter(None, parts))


def as_json(found: TraceStats, traces: Sequence[Listed]) -> dict[str, Any]:
    """Return the figures as JSON."""

    def of(sample: Sample) -> dict[str, float]:
        shares = {f"p{share}": sample.percentile(share) for share in PERCENTILES}
        return {
            "count": len(sample.values),
            "total": sample.total,
            **shares,
            "max": sample.percentile(100),
        }

    return {
        "traces": found.traces,
        "sessions": found.sessions,
        "calls": found.calls,
        "forks": found.forks,
        "forking_traces": found.forking,
        "joined_forks": found.joined,
        "uncounted_calls": found.uncounted,
        "input_per_output": found.input_per_output,
        "turns": of(found.turns),
        "fork_turns": of(found.fork_turns),
        "input_tokens": of(found.input_tokens),
        "output_tokens": of(found.output_tokens),
        "first_input_tokens": of(found.first_input_tokens),
        "peak_tokens": of(found.peak_tokens),
        "fresh_tokens": of(found.fresh_tokens),
        "gaps_s": {reason: of(sample) for reason, sample in found.gaps_s.items()},
        "duration_s": of(found.duration_s),
        "theoretical_hits": {
            name: {
                "blocks": hits.blocks,
                "block_rate": hits.block_rate,
                "tokens": hits.tokens,
                "token_rate": hits.token_rate,
            }
            for name, hits in _hits(found)
        },
        "listed": [one._asdict() for one in traces],
    }


def _hits(found: TraceStats) -> list[tuple[str, Hits]]:
    return [("all", found.all), ("main", found.main), ("subagents", found.subagents)]


def _row(name: str, *cells: str) -> str:
    return " ".join([name.ljust(_LABEL_WIDTH), *(cell.rjust(13) for cell in cells)]).rstrip()


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def _histogram(title: str, sample: Sample, width: int) -> str:
    """Return bars over classes that double, the kind of spread that agents have."""
    if not sample.values:
        return ""
    powers = [math.floor(math.log2(value)) if value >= 1 else -1 for value in sample.values]
    low, high = min(powers), max(powers)
    low = max(low, high - _BARS + 1)
    counts = [0] * (high - low + 1)
    for power in powers:
        counts[max(0, power - low)] += 1
    return "\n".join([title, *_bars(counts, low, width, len(powers))])


def _bars(counts: Sequence[int], low: int, width: int, total: int) -> list[str]:
    room = max(10, width - 36)
    label: Callable[[int], str] = lambda power: f"{2**power:,}" if power >= 0 else "0"  # noqa: E731
    rows: list[str] = []
    below = 0
    for place, count in enumerate(counts):
        below += count
        eighths = round(count / max(counts) * room * 8)
        bar = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
        least = "<" + label(low + 1) if not place else label(low + place)
        rows.append(f"{least:>11} {bar:<{room}} {count / total:>6.1%} {below / total:>7.1%}")
    return rows
