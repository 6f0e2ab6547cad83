"""The charts of one comparison. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tenuto.compare import Comparison, Figure
from tenuto.compare.pairs import Side as Measured
from tenuto.report.charts import Line, bars, plot
from tenuto.report.words import value_text

_POINTS = 240
_DOTS = 1_500
_TURN_BINS = 40
_TOKEN_PARTS = (("unavoidable", "quiet"), ("placement", "c1"), ("retention", "c2"))
_SECOND_PARTS = (("queueing_s", "c1"), ("prefill_s", "c2"), ("decode_s", "c3"))

Floats = NDArray[np.float64]


def token_bars(comparison: Comparison) -> str:
    """Return both sides' uncached tokens by cause."""
    figures = {figure.key: figure for figure in comparison.parts.tokens}
    parts = [(figures[key], css) for key, css in _TOKEN_PARTS if key in figures]
    shown = parts or [(figures["uncached"], "quiet")]
    return _bars(comparison, shown, "Uncached tokens by cause")


def second_bars(comparison: Comparison) -> str:
    """Return both sides' seconds of all turns by what was done in them."""
    figures = {figure.key: figure for figure in comparison.parts.seconds}
    parts = [(figures[key], css) for key, css in _SECOND_PARTS]
    return _bars(comparison, parts, "Seconds of all turns")


def ttft_curves(comparison: Comparison) -> str:
    """Return the share of turns whose first token came within a time, for both sides."""
    shares = np.linspace(0.0, 1.0, _POINTS)
    lines = [
        Line(name, list(zip(np.maximum(times, 1e-4).tolist(), shares.tolist(), strict=True)), css)
        for name, times, css in (
            (name, np.quantile(np.median(side.ttft_s, axis=0), shares), css)
            for name, side, css in _sides(comparison)
        )
    ]
    return plot(
        lines,
        title="Time to the first token, share of turns",
        x_label="time to the first token, logarithmic",
        x_text=lambda x: f"{x:g} s" if x >= 1 else f"{x * 1000:g} ms",
        y_text=_percent,
        x_log=True,
        y_range=(0.0, 1.0),
    )


def paired_dots(comparison: Comparison) -> str:
    """Return each turn's difference in time to the first token, over the base's time."""
    pairs = comparison.pairs
    differences = np.median(pairs.b.ttft_s, axis=0) - np.median(pairs.a.ttft_s, axis=0)
    start_s = pairs.a.start_s[0] - pairs.a.start_s[0].min()
    order = np.argsort(start_s)
    chosen = order[:: max(1, -(-len(order) // _DOTS))]
    # One turn that waited a minute must not press all others onto the axis.
    reach = float(np.quantile(np.abs(differences), 0.98)) or 1e-3
    dots = list(zip(start_s[chosen].tolist(), differences[chosen].tolist(), strict=True))
    end_s, middle = float(start_s.max()) or 1.0, float(np.median(differences))
    return plot(
        [
            Line("a turn", dots, "c2", is_dots=True),
            Line("no difference", [(0.0, 0.0), (end_s, 0.0)], "quiet"),
            Line("median", [(0.0, middle), (end_s, middle)], "b", is_dashed=True),
        ],
        title="Time to the first token, B - A for each turn",
        x_label="start of the turn in A, s; 2 % of the turns are cut off at the edges",
        x_text=lambda x: f"{x:,.6g}",
        y_text=lambda y: value_text(y, "s", signed=True) if y else "0",
        y_range=(-reach, reach),
    )


def hit_rates(comparison: Comparison) -> str:
    """Return the cached share of prompts over the turn's index, and its bound."""
    pairs = comparison.pairs
    turn = np.array([key[2] for key in pairs.keys])
    edges = np.unique(np.quantile(turn, np.linspace(0, 1, _TURN_BINS + 1)).astype(int))
    place = np.searchsorted(edges, turn, side="right") - 1
    lines: list[Line] = []
    if pairs.a.reachable_tokens is not None:
        shares = _shares(pairs.a.reachable_tokens, pairs.a.prompt_tokens, place)
        lines.append(Line("caches without end", _over(edges, shares), "quiet", is_dashed=True))
    for name, side, css in _sides(comparison):
        shares = _shares(side.cached_tokens, side.prompt_tokens, place)
        lines.append(Line(name, _over(edges, shares), css))
    return plot(
        lines,
        title="Cached share of the prompt, by turn",
        x_label="index of the turn in its session",
        x_text=lambda x: f"{x:,.6g}",
        y_text=_percent,
        y_range=(0.0, 1.0),
    )


def _sides(comparison: Comparison) -> tuple[tuple[str, Measured, str], ...]:
    a, b = comparison.names
    return ((f"A {a}", comparison.pairs.a, "a"), (f"B {b}", comparison.pairs.b, "b"))


def _bars(comparison: Comparison, parts: Sequence[tuple[Figure, str]], title: str) -> str:
    unit = parts[0][0].unit
    rows = [
        (name, [(figure.label, (figure.a, figure.b)[side].value, css) for figure, css in parts])
        for side, (name, _, _) in enumerate(_sides(comparison))
    ]
    return bars(rows, title=title, text=lambda value: value_text(value, unit))


def _shares(part: Floats, whole: Floats, place: NDArray[np.int64]) -> Floats:
    count = int(place.max()) + 1
    above = np.bincount(place, part.sum(axis=0), count)
    return above / np.maximum(np.bincount(place, whole.sum(axis=0), count), 1.0)


def _over(edges: NDArray[np.int64], shares: Floats) -> list[tuple[float, float]]:
    return list(zip(edges.tolist(), shares.tolist(), strict=False))


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")
