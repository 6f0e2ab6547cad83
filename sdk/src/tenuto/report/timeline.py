"""A picture of who served what, when: SVG, one lane for each rank. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from tenuto.report.colour import SCALE_STOPS, colour_of, ink_on
from tenuto.report.lanes import Lane, codes, lanes, letters, moves
from tenuto.report.summary import summarise
from tenuto.report.table import on_one_rank
from tenuto.results import TurnResult

_WIDTH = 1200
_LEFT, _RIGHT = 74, 24
_ROW, _GAP = 19, 2
_LANE_GAP = 22
_PANEL_HEAD = 52
_PANEL_GAP = 26
_HEAD = 92
_FOOT = 62
_LETTER_WIDTH = 6.4
_LONGEST_NAME = 24

_INK, _QUIET, _LANE_FILL = "#1b1f24", "#59636e", "#f3f5f7"


@dataclass(frozen=True, slots=True)
class Side:
    """One panel of the picture: a name and what was measured, on a clock from 0."""

    name: str
    results: Sequence[TurnResult]


@dataclass(frozen=True, slots=True)
class _Frame:
    """Seconds to pixels, and the sessions' short names; the same for all panels."""

    px_per_s: float
    codes: dict[tuple[str, str], str]

    def x(self, at_s: float) -> float:
        return _LEFT + at_s * self.px_per_s


def timeline_svg(sides: Sequence[Side], *, ranks: int, title: str, note: str) -> str:
    """Return an SVG with one panel a side, all on one time axis.

    A box is one turn, coloured by the share of its prompt that was cached; a line goes
    from one turn of a session to the next where the rank changed.

    Args:
        sides: the panels, top to bottom.
        ranks: data-parallel ranks of the server, >= 1.
        title: heading of the picture.
        note: one line below it, such as where the times come from.
    """
    everything = [result for side in sides for result in side.results]
    end_s = max((result.end_s for result in everything), default=1.0) or 1.0
    frame = _Frame((_WIDTH - _LEFT - _RIGHT) / end_s, codes(everything))
    parts: list[str] = []
    top = float(_HEAD)
    for side in sides:
        panel, height = _panel(side, ranks, frame, top)
        parts += panel
        top += height + _PANEL_GAP
    parts += _axis(frame, end_s, top - _PANEL_GAP)
    parts += _key(everything, top + 14)
    height = top + _FOOT
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" '
            f'width="{_WIDTH}" height="{height:.0f}" role="img" '
            "font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\">",
            f"<title>{escape(title)}</title>",
            f'<rect width="{_WIDTH}" height="{height:.0f}" fill="#ffffff"/>',
            _text(24, 38, title, size=21, weight=600),
            _text(24, 62, note, size=13, fill=_QUIET),
            *parts,
            "</svg>",
            "",
        ]
    )


def _panel(side: Side, ranks: int, frame: _Frame, top: float) -> tuple[list[str], float]:
    """Return a panel's elements and its height in pixels."""
    total = summarise(side.results, ranks=ranks)
    figures = (
        f"{total.cached_share:.0%} of prompt tokens cached · {total.uncached_tokens:,} computed · "
        f"sessions on one rank: {on_one_rank(total)} · "
        f"TTFT p50 {total.ttft_p50_s * 1000:,.0f} ms, p90 {total.ttft_p90_s * 1000:,.0f} ms"
    )
    parts = [
        _text(24, top + 14, side.name, size=16, weight=600),
        _text(_WIDTH - _RIGHT, top + 14, figures, size=13, fill=_INK, anchor="end"),
    ]
    starts: dict[str, float] = {}
    for result in side.results:
        starts[result.trace] = min(result.start_s, starts.get(result.trace, result.start_s))
    y = top + _PANEL_HEAD
    middles: dict[TurnResult, float] = {}
    boxes: list[str] = []
    for lane in lanes(side.results, ranks=ranks):
        height = len(lane.rows) * (_ROW + _GAP) + 2 * _GAP
        name = "rank ?" if lane.rank is None else f"rank {lane.rank}"
        width = _WIDTH - _LEFT - _RIGHT
        parts.append(
            f'<rect x="{_LEFT}" y="{y:.1f}" width="{width}" height="{height:.1f}" rx="3" '
            f'fill="{_LANE_FILL}"/>'
        )
        parts.append(_text(_LEFT - 10, y + height / 2 + 5, name, size=14, anchor="end"))
        boxes += _boxes(lane, frame, y + 2 * _GAP - 1, middles)
        y += height + _LANE_GAP
    bottom = y - _LANE_GAP
    parts += _captions(starts, frame, top + _PANEL_HEAD, bottom)
    for before, after in moves(side.results):
        begin, end = (
            (frame.x(before.end_s), middles[before]),
            (frame.x(after.start_s), middles[after]),
        )
        parts.append(_line(begin, end, 'stroke-opacity="0.55"'))
    return [*parts, *boxes], bottom - top


def _boxes(lane: Lane, frame: _Frame, y: float, middles: dict[TurnResult, float]) -> list[str]:
    """Return a lane's boxes; note in `middles` how far down each is."""
    parts: list[str] = []
    for number, row in enumerate(lane.rows):
        row_y = y + number * (_ROW + _GAP)
        for result in row:
            x = frame.x(result.start_s)
            width = max(2.0, (result.end_s - result.start_s) * frame.px_per_s - 1)
            middles[result] = row_y + _ROW / 2
            share = result.cached_tokens / result.prompt_tokens if result.prompt_tokens else 0.0
            code = frame.codes[result.trace, result.session]
            tip = (
                f"{result.session}, turn {result.turn}: {result.prompt_tokens:,} prompt tokens, "
                f"{share:.0%} cached, first token after {result.ttft_s * 1000:,.0f} ms"
            )
            parts.append(
                f'<g><title>{escape(tip)}</title><rect x="{x:.1f}" y="{row_y:.1f}" '
                f'width="{width:.1f}" height="{_ROW}" rx="2" fill="{colour_of(share)}"/>'
            )
            if width >= _LETTER_WIDTH * len(code) + 3:
                middle = x + width / 2
                parts.append(
                    _text(
                        middle, row_y + 13.5, code, size=10.5, fill=ink_on(share), anchor="middle"
                    )
                )
            parts.append("</g>")
    return parts


def _captions(starts: dict[str, float], frame: _Frame, top: float, bottom: float) -> list[str]:
    """Draw where traces begin; those that begin too near each other share a caption."""
    parts: list[str] = []
    shared: list[tuple[float, list[str]]] = []
    free = 0.0
    for trace, start_s in sorted(starts.items(), key=lambda item: item[1]):
        x = frame.x(start_s)
        parts.append(_line((x, top - 18), (x, bottom), 'stroke-dasharray="3 3"'))
        if x >= free:
            shared.append((x, []))
            free = x + 10 + _LETTER_WIDTH * len(_caption([trace, trace]))
        shared[-1][1].append(trace)
    for x, traces in shared:
        parts.append(_text(x + 5, top - 8, _caption(traces), size=12, fill=_QUIET))
    return parts


def _caption(traces: Sequence[str]) -> str:
    first = traces[0] if len(traces[0]) <= _LONGEST_NAME else f"{traces[0][:8]}…"
    return first if len(traces) == 1 else f"{first} and {len(traces) - 1} more"


def _line(begin: tuple[float, float], end: tuple[float, float], style: str = "") -> str:
    return (
        f'<line x1="{begin[0]:.1f}" y1="{begin[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" '
        f'stroke="{_QUIET}" {style}/>'
    )


def _axis(frame: _Frame, end_s: float, bottom: float) -> list[str]:
    step_s = next(
        (
            step
            for step in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
            if end_s / step <= 14
        ),
        end_s / 10,
    )
    parts: list[str] = []
    for number in range(int(end_s / step_s) + 1):
        x = frame.x(number * step_s)
        parts.append(_line((x, bottom), (x, bottom + 6)))
        parts.append(
            _text(x, bottom + 19, f"{number * step_s:g} s", size=12, fill=_QUIET, anchor="middle")
        )
    return parts


def _key(results: Sequence[TurnResult], y: float) -> list[str]:
    agents = ", ".join(f"{letter} {agent}" for agent, letter in letters(results).items())
    stops = "".join(
        f'<stop offset="{share:.0%}" stop-color="{colour_of(share)}"/>' for share in SCALE_STOPS
    )
    return [
        f'<defs><linearGradient id="cached">{stops}</linearGradient></defs>',
        _text(_LEFT, y + 24, "cached share of the prompt", size=12, fill=_QUIET),
        _text(_LEFT + 176, y + 24, "0 %", size=12, fill=_QUIET),
        f'<rect x="{_LEFT + 202}" y="{y + 13:.1f}" width="150" height="14" rx="2" '
        'fill="url(#cached)"/>',
        _text(_LEFT + 358, y + 24, "100 %", size=12, fill=_QUIET),
        _text(
            _WIDTH - _RIGHT,
            y + 24,
            f"box: a turn · line: moved to another rank · {agents}",
            size=12,
            anchor="end",
        ),
    ]


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: float,
    fill: str = _INK,
    weight: int = 400,
    anchor: str = "start",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{fill}" '
        f'font-weight="{weight}" text-anchor="{anchor}">{escape(text)}</text>'
    )
