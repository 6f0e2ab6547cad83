"""The spans of one trace as a picture: SVG, a row for each session. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from xml.sax.saxutils import escape

from tenuto.telemetry import names

_WIDTH, _LEFT, _RIGHT = 1200, 190, 30
_TOP, _ROW, _BAR = 84, 40, 22
# Okabe and Ito's colours, with the text that is readable on each; the first is the run's.
_COLOURS = (
    ("#d0d7de", "#1b1f24"),
    ("#0072b2", "#ffffff"),
    ("#e69f00", "#000000"),
    ("#009e73", "#000000"),
    ("#cc79a7", "#000000"),
    ("#56b4e9", "#000000"),
)
_INK, _QUIET, _RETRY = "#1b1f24", "#59636e", "#b3261e"


class Span(Protocol):
    """What is read of a span, whoever collected it; `events` are (name, ns, attributes)."""

    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any]
    events: Sequence[tuple[str, int, Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class _Row:
    """One session: its label, who served it, its colours, and its spans in order of time."""

    label: str
    ranks: str
    fill: str
    ink: str
    spans: Sequence[Span]


def waterfall_svg(spans: Sequence[Span], *, title: str) -> str:
    """Return one trace as SVG: model calls with their cached shares, tools, and retries.

    Args:
        spans: of one trace; those outside of every session are left out.
        title: heading of the picture.
    """
    rows = _rows(spans)
    drawn = [span for row in rows for span in row.spans]
    start_ns, end_ns = min(s.start_ns for s in drawn), max(s.end_ns for s in drawn)
    px_per_ns = (_WIDTH - _LEFT - _RIGHT) / max(end_ns - start_ns, 1)

    def x(at_ns: int) -> float:
        return _LEFT + (at_ns - start_ns) * px_per_ns

    parts: list[str] = []
    for number, row in enumerate(rows):
        y = _TOP + number * _ROW
        parts.append(_text(24, y + 10, row.label, size=14))
        parts.append(_text(24, y + 25, row.ranks, size=11, fill=_QUIET))
        for span in row.spans:
            parts.append(_box(span, row, x(span.start_ns), x(span.end_ns), y))
            parts += [
                _mark(x(at), y, said) for name, at, said in span.events if name == names.RETRY
            ]
    height = _TOP + len(rows) * _ROW + 34
    parts += _axis(end_ns - start_ns, px_per_ns * 1e6, height - 34)
    note = "filled: a model call and the share of its prompt that was cached"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
            f'width="{_WIDTH}" height="{height}" role="img" '
            "font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\">",
            f"<title>{escape(title)}</title>",
            # A ground of its own, so that it can be read on a dark page.
            f'<rect width="{_WIDTH}" height="{height}" rx="6" fill="#ffffff"/>',
            _text(24, 34, title, size=19, weight=600),
            _text(24, 56, f"{note}; outlined: a wait for tools; red: a retry", fill=_QUIET),
            *parts,
            "</svg>",
            "",
        ]
    )


def _rows(spans: Sequence[Span]) -> list[_Row]:
    sessions: dict[str, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.start_ns):
        if names.SESSION in span.attributes:
            sessions[span.attributes[names.SESSION]].append(span)
    paths = [_path(own) for own in sessions.values()]
    colours = {
        path: _COLOURS[i % len(_COLOURS)] for i, path in enumerate(dict.fromkeys(["", *paths]))
    }
    seen = Counter[str]()
    rows: list[_Row] = []
    for path, own in zip(paths, sessions.values(), strict=True):
        seen[path] += 1
        label = f"{path} {seen[path]}" if paths.count(path) > 1 else path or "run"
        served = {span.attributes[names.RANK] for span in own if names.RANK in span.attributes}
        ranks = ", ".join(f"rank {rank}" for rank in sorted(served))
        rows.append(_Row(label, ranks, *colours[path], own))
    return rows


def _path(spans: Sequence[Span]) -> str:
    return str(spans[0].attributes.get(names.AGENT_PATH, ""))


def _box(span: Span, row: _Row, left: float, right: float, y: float) -> str:
    said = span.attributes
    width = max(right - left, 2)
    at = f'x="{left:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" rx="2"'
    ms = (span.end_ns - span.start_ns) / 1e6
    tip = f"{row.label}: {span.name}, {ms:,.0f} ms"
    if not names.is_model_call(dict(said)):
        look = f'fill="{row.fill}" fill-opacity="0.25"'
        if names.is_tool(span.name, dict(said)):
            look = f'fill="#ffffff" stroke="{row.fill}" stroke-width="2"'
        return f"<g><title>{escape(tip)}</title><rect {at} {look}/></g>"
    share = said.get(names.CACHED_SHARE)
    cached = "" if share is None else f"{share:.0%}"
    tip += f", turn {said.get(names.TURN)}, rank {said.get(names.RANK)}, {cached or '?'} cached"
    middle = left + width / 2
    return (
        f'<g><title>{escape(tip)}</title><rect {at} fill="{row.fill}"/>'
        + _text(middle, y + 15, cached, fill=row.ink, size=11, anchor="middle")
        + "</g>"
    )


def _mark(x: float, y: float, said: Mapping[str, Any]) -> str:
    reason = str(said.get(names.RETRY_REASON, ""))
    return (
        f"<g><title>{escape(f'retry after {reason}')}</title>"
        f'<path d="M{x:.1f} {y - 2} l5 -8 l-10 0 z" fill="{_RETRY}"/>'
        + _text(x + 8, y - 3, f"retry after {reason}", fill=_RETRY, size=11)
        + "</g>"
    )


def _axis(length_ns: int, px_per_ms: float, y: float) -> list[str]:
    length_ms = length_ns / 1e6
    step = next((s for s in (10, 20, 50, 100, 200, 500, 1000, 2000) if length_ms / s <= 10), 5000)
    parts: list[str] = []
    for ms in range(0, int(length_ms) + 1, step):
        x = _LEFT + ms * px_per_ms
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 8}" y2="{y}" stroke="{_INK}" '
            'stroke-opacity="0.12"/>'
        )
        parts.append(_text(x, y + 18, f"{ms} ms", fill=_QUIET, size=11, anchor="middle"))
    return parts


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 13,
    weight: int = 400,
    fill: str = _INK,
    anchor: str = "start",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" '
        f'fill="{fill}" text-anchor="{anchor}">{escape(text)}</text>'
    )
