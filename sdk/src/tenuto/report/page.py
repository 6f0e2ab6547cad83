"""Comparisons as one HTML file that needs nothing else: no script, no font, no network. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from html import escape
from typing import cast

from tenuto.compare import Comparison, Figure
from tenuto.report.compared import rows_of, side_by_side
from tenuto.report.page_words import READING, STYLE
from tenuto.report.pictures import hit_rates, paired_dots, second_bars, token_bars, ttft_curves
from tenuto.report.timeline import Side, timeline_svg
from tenuto.report.words import change_text, estimate_text, mark, resampled_text, share_text
from tenuto.results import Header, Results, TurnResult

_MOST_ON_A_TIMELINE = 400


def page(comparisons: Sequence[Comparison], runs: Sequence[Results], *, command: str) -> str:
    """Return the page.

    Args:
        comparisons: all with the same base, at least one.
        runs: the base and then the others, for the timeline.
        command: that makes this page again.
    """
    body = [
        part
        for comparison, other in zip(comparisons, runs[1:], strict=True)
        for part in _section(comparison, runs[0], other)
    ]
    if len(comparisons) > 1:
        body.insert(0, f"<h1>All runs</h1><pre>{escape(side_by_side(comparisons))}</pre>")
    names = ", ".join([comparisons[0].names[0], *(one.names[1] for one in comparisons)])
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>tenuto compare: {escape(names)}</title>",
            f"<style>{STYLE}</style></head><body><main>",
            *body,
            "<h2>How to read it</h2>",
            "<dl>",
            *(f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>" for term, text in READING),
            "</dl>",
            f"<h2>Make it again</h2><pre>{escape(command)}</pre>",
            "</main></body></html>",
            "",
        ]
    )


def _section(comparison: Comparison, base: Results, other: Results) -> list[str]:
    a, b = (escape(name) for name in comparison.names)
    repeats = (comparison.pairs.a.repeats, comparison.pairs.b.repeats)
    made = resampled_text(comparison.resampled, comparison.clusters, repeats)
    cause = comparison.verdict.cause
    return [
        f"<h1>{escape(cause.capitalize() if cause else 'No difference claimed')}</h1>",
        f'<p class="verdict">{escape(comparison.verdict.words)}</p>',
        f'<p><span class="dot a"></span>A {a} &nbsp; <span class="dot b"></span>B {b}</p>',
        f"<p class=quiet>{len(comparison.pairs.keys):,} paired turns; {escape(made)}.</p>",
        *(f"<p class=note>Allowed difference: {escape(line)}</p>" for line in comparison.allowed),
        *(f"<p class=note>{escape(note)}.</p>" for note in comparison.notes),
        "<h2>What moved</h2><div class=charts>",
        *_cached(comparison, "Uncached tokens by cause", token_bars),
        _figure("Seconds of all turns", second_bars(comparison)),
        "</div>",
        *_shares(comparison),
        "<h2>Figures</h2>",
        *(_table(heading, figures) for heading, figures in rows_of(comparison)),
        "<h2>Distributions</h2><div class=charts>",
        _figure("Time to the first token, share of turns", ttft_curves(comparison)),
        _figure("Time to the first token, B - A for each turn", paired_dots(comparison)),
        *_cached(comparison, "Cached share of the prompt, by turn", hit_rates),
        "</div>",
        *_timeline(comparison, base, other),
        *_headers(*comparison.headers),
    ]


def _figure(caption: str, svg: str) -> str:
    return f"<figure><figcaption>{escape(caption)}</figcaption>{svg}</figure>"


def _cached(
    comparison: Comparison, caption: str, drawn: Callable[[Comparison], str]
) -> Iterator[str]:
    """Give a picture of the cache, where the servers tell what it holds."""
    if comparison.pairs.knows_cached:
        yield _figure(caption, drawn(comparison))


def _shares(comparison: Comparison) -> list[str]:
    shares = comparison.verdict.shares
    if not shares:
        return []
    listed = ", ".join(f"{escape(name)} {share_text(share)}" for name, share in shares.items())
    return [f"<p>Shares of the change in {comparison.verdict.basis}: {listed}.</p>"]


def _table(heading: str, figures: Sequence[Figure]) -> str:
    names = (heading, "A", "B", "B - A", "change", "")
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    return _wide(f"<tr>{head}</tr>", "".join(map(_row, figures)))


def _wide(head: str, rows: str, *, kind: str = "figures") -> str:
    table = f'<table class="{kind}"><thead>{head}</thead><tbody>{rows}</tbody></table>'
    return f'<div class="wide">{table}</div>'


def _row(figure: Figure) -> str:
    cells = (
        estimate_text(figure.a, figure.unit),
        estimate_text(figure.b, figure.unit),
        estimate_text(figure.difference, figure.unit, signed=True),
        change_text(figure),
    )
    claimed = mark(figure)
    data = "".join(f"<td>{_cell(text)}</td>" for text in cells)
    label = f'<th scope="row">{escape(figure.label)}</th>'
    return f'<tr>{label}{data}<td class="{claimed}">{claimed}</td></tr>'


def _cell(text: str) -> str:
    value, bracket, interval = text.partition(" [")
    quiet = f" <small>[{escape(interval)}</small>" if bracket else ""
    return escape(value) + quiet


def _timeline(comparison: Comparison, base: Results, other: Results) -> list[str]:
    first = [_first_repeat(run) for run in (base, other)]
    ranks = {turn.rank for turns in first for turn in turns if turn.rank is not None}
    if not ranks or max(map(len, first)) > _MOST_ON_A_TIMELINE:
        return []
    sides = [
        Side(f"{letter} {name}", turns)
        for letter, name, turns in zip("AB", comparison.names, first, strict=True)
    ]
    svg = timeline_svg(
        sides, ranks=max(ranks) + 1, title="Who served what, when", note="The first repeat."
    )
    return ["<h2>Timeline</h2>", f'<div class="wide timeline">{svg}</div>']


def _first_repeat(run: Results) -> list[TurnResult]:
    """Return a repeat's turns on a clock from 0."""
    repeat = min((turn.repeat for turn in run.turns), default=0)
    turns = [turn for turn in run.turns if turn.repeat == repeat and turn.error is None]
    zero_s = min((turn.start_s for turn in turns), default=0.0)
    return [
        replace(
            turn,
            start_s=turn.start_s - zero_s,
            first_token_s=turn.first_token_s - zero_s,
            end_s=turn.end_s - zero_s,
        )
        for turn in turns
    ]


def _headers(a: Header, b: Header) -> list[str]:
    both = [
        (name, getattr(a, name), getattr(b, name))
        for name in Header.model_fields
        if name != "traces"
    ]
    rows = [
        f'<tr><th scope="row">{name}</th><td>{_said(left)}</td><td>{_said(right)}</td></tr>'
        for name, left, right in both
        if left != right
    ]
    if not rows:
        return ["<h2>Headers</h2><p>The headers of both files are equal.</p>"]
    head = "<tr><th>header</th><th>A</th><th>B</th></tr>"
    return [
        "<h2>What the headers say differently</h2>",
        _wide(head, "".join(rows), kind="words"),
    ]


def _said(value: object) -> str:
    if isinstance(value, dict):
        engine = cast("dict[str, object]", value)
        return escape(", ".join(f"{key}={one}" for key, one in engine.items()))
    return "-" if value is None else escape(str(value))
