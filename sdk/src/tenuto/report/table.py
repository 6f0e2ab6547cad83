"""Summaries as a table, in plain text or markdown. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.report.summary import Summary

COLUMNS = (
    "trace",
    "side",
    "requests",
    "by rank",
    "sessions on one rank",
    "prompt tokens",
    "cached",
    "cached share",
    "uncached",
    "TTFT p50 ms",
    "TTFT p90 ms",
)
_WORDS = 2


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: which trace, on which side, with what result."""

    trace: str
    side: str
    summary: Summary


def table(rows: Sequence[Row], *, markdown: bool = False) -> str:
    """Return the rows as text, columns `COLUMNS`, without a newline at its end."""
    cells = [COLUMNS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(COLUMNS))]
    lines = [
        [
            text.ljust(width) if column < _WORDS else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        for line in cells
    ]
    if not markdown:
        rule = ["-" * width for width in widths]
        return "\n".join("  ".join(line).rstrip() for line in [lines[0], rule, *lines[1:]])
    rule = [
        "-" * width if column < _WORDS else "-" * (width - 1) + ":"
        for column, width in enumerate(widths)
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], rule, *lines[1:]])


def on_one_rank(summary: Summary) -> str:
    """Return how many sessions met one rank only, of how many."""
    if not summary.knows_ranks:
        return "unknown"
    return f"{summary.sessions_on_one_rank} of {summary.sessions}"


def _cells(row: Row) -> tuple[str, ...]:
    summary = row.summary
    return (
        row.trace,
        row.side,
        f"{summary.requests}",
        " / ".join(map(str, summary.requests_per_rank)) if summary.knows_ranks else "unknown",
        on_one_rank(summary),
        f"{summary.prompt_tokens:,}",
        f"{summary.cached_tokens:,}",
        f"{summary.cached_share:.1%}",
        f"{summary.uncached_tokens:,}",
        f"{summary.ttft_p50_s * 1000:,.0f}",
        f"{summary.ttft_p90_s * 1000:,.0f}",
    )
