"""Comparisons as a text table. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.compare import Comparison, Figure
from tenuto.report.words import (
    change_text,
    estimate_text,
    mark,
    resampled_text,
    share_text,
    value_text,
)


def compared_text(comparisons: Sequence[Comparison]) -> str:
    """Return one part for each comparison, and before them all runs in one table when several.

    Args:
        comparisons: all with the same base, at least one.
    """
    parts = [_one(comparison) for comparison in comparisons]
    if len(comparisons) > 1:
        parts.insert(0, side_by_side(comparisons))
    return "\n\n".join(parts)


def rows_of(comparison: Comparison) -> tuple[tuple[str, tuple[Figure, ...]], ...]:
    """Return the groups of figures that tables show, each with its heading."""
    parts = comparison.parts
    groups = (
        ("figure", (*comparison.figures, *((parts.moves,) if parts.moves else ()))),
        ("uncached tokens", parts.tokens),
        ("seconds of all turns", (*parts.seconds, parts.speed)),
    )
    return tuple((heading, figures) for heading, figures in groups if figures)


def _one(comparison: Comparison) -> str:
    a, b = comparison.names
    repeats = (comparison.pairs.a.repeats, comparison.pairs.b.repeats)
    made = resampled_text(comparison.resampled, comparison.clusters, repeats)
    lines = [
        f"A  {a}",
        f"B  {b}",
        f"{len(comparison.pairs.keys):,} paired turns; {made}",
        *(f"allowed: {line}" for line in comparison.allowed),
        "",
        comparison.verdict.words,
        "",
    ]
    if comparison.verdict.shares:
        listed = ", ".join(
            f"{name} {share_text(share)}" for name, share in comparison.verdict.shares.items()
        )
        lines[-1:] = [f"shares of the change in {comparison.verdict.basis}: {listed}", ""]
    for heading, figures in rows_of(comparison):
        cells = [(heading, "A", "B", "B - A", "change", ""), *map(_cells, figures)]
        lines += [*_aligned(cells), ""]
    lines += [f"note: {note}" for note in comparison.notes]
    return "\n".join(lines).rstrip()


def side_by_side(comparisons: Sequence[Comparison]) -> str:
    """Return all runs side by side; a star marks what differs from the base."""
    base = comparisons[0]
    cells = [("figure", base.names[0], *(one.names[1] for one in comparisons))]
    shown = [
        {figure.key: figure for _, figures in rows_of(one) for figure in figures}
        for one in comparisons
    ]
    for _, figures in rows_of(base):
        for figure in figures:
            others = [
                f"{value_text(found.b.value, found.unit)}{' *' if found.is_different else ''}"
                if (found := one.get(figure.key))
                else "-"
                for one in shown
            ]
            cells.append((figure.label, value_text(figure.a.value, figure.unit), *others))
    causes = ["cause", "base", *(one.verdict.cause or "none claimed" for one in comparisons)]
    return "\n".join([*_aligned([*cells, tuple(causes)]), "* differs from the base"])


def _cells(figure: Figure) -> tuple[str, ...]:
    return (
        figure.label,
        estimate_text(figure.a, figure.unit),
        estimate_text(figure.b, figure.unit),
        estimate_text(figure.difference, figure.unit, signed=True),
        change_text(figure),
        mark(figure),
    )


def _aligned(cells: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = [
        "  ".join(
            text.ljust(width) if column == 0 else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]
