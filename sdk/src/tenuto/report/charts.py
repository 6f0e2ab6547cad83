"""Small SVG charts whose colours are the page's CSS variables, for dark and light. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 620, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 16, 30, 44
_BAR, _BAR_GAP, _BAR_LEFT = 34, 16, 110


@dataclass(frozen=True, slots=True)
class Line:
    """Points joined, or dots where `is_dots`; `css` is a colour variable's name."""

    name: str
    points: Sequence[tuple[float, float]]
    css: str
    is_dashed: bool = False
    is_dots: bool = False


def plot(
    lines: Sequence[Line],
    *,
    title: str,
    x_label: str,
    x_text: Callable[[float], str],
    y_text: Callable[[float], str],
    x_log: bool = False,
    y_range: tuple[float, float] | None = None,
) -> str:
    """Return lines over two axes, with a key below the title.

    Args:
        lines: what to draw; later ones lie on top.
        title: heading, read out for the whole picture.
        x_label: what the x axis shows.
        x_text: how a tick on it is written.
        y_text: the same of the y axis.
        x_log: the x axis is logarithmic; values are above 0.
        y_range: ends of the y axis; by default those of the data.
    """
    xs = [x for line in lines for x, _ in line.points] or [1.0]
    ys = [y for line in lines for _, y in line.points] or [0.0]
    scale = math.log10 if x_log else float
    left, right = scale(min(xs)), scale(max(xs))
    low, high = y_range or (min(ys), max(ys))
    right, high = (right if right > left else left + 1), (high if high > low else low + 1)
    inner_width, inner_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(point: tuple[float, float]) -> tuple[float, float]:
        y = min(max(point[1], low), high)
        return (
            _LEFT + (scale(point[0]) - left) / (right - left) * inner_width,
            _TOP + (high - y) / (high - low) * inner_height,
        )

    parts: list[str] = []
    for value in _ticks(low, high):
        y = place((xs[0], value))[1]
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" {_ys(y)}/>')
        parts.append(_text(_LEFT - 8, y + 4, y_text(value), "end"))
    for tick in _log_ticks(left, right) if x_log else _ticks(left, right):
        x = place((tick, low))[0]
        parts.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>'
        )
        parts.append(_text(x, _HEIGHT - _BOTTOM + 17, x_text(tick), "middle"))
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, x_label, "middle"))
    for line in lines:
        parts.append(_drawn(line, [place(point) for point in line.points]))
    return _svg(title, _HEIGHT, [*parts, *_key(lines)])


def bars(
    rows: Sequence[tuple[str, Sequence[tuple[str, float, str]]]],
    *,
    title: str,
    text: Callable[[float], str],
) -> str:
    """Return stacked horizontal bars on one scale.

    Args:
        rows: each a name and its parts: name, value >= 0, colour variable.
        title: heading, read out for the whole picture.
        text: how a value is written.
    """
    most = max((sum(max(0.0, v) for _, v, _ in parts) for _, parts in rows), default=0.0) or 1.0
    px = (_WIDTH - _BAR_LEFT - 110) / most
    drawn: list[str] = []
    y = 14.0
    for name, parts in rows:
        drawn.append(_text(_BAR_LEFT - 10, y + _BAR / 2 + 4, _short(name), "end"))
        x = float(_BAR_LEFT)
        for part, value, css in parts:
            width = max(0.0, value) * px
            tip = f"<title>{escape(part)}: {escape(text(value))}</title>"
            drawn.append(
                f'<g>{tip}<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_BAR}" '
                f'style="fill:var(--{css})"/></g>'
            )
            x += width
        total = sum(value for _, value, _ in parts)
        drawn.append(_text(x + 8, y + _BAR / 2 + 4, text(total), "start"))
        y += _BAR + _BAR_GAP
    # A table of values under the bars: parts of a few percent have no room for a label.
    for number, (part, _, css) in enumerate(rows[0][1] if rows else ()):
        values = " → ".join(text(parts[number][1]) for _, parts in rows)
        drawn.append(
            f'<rect x="{_BAR_LEFT}" y="{y:.1f}" width="12" height="12" style="fill:var(--{css})"/>'
        )
        drawn.append(_text(_BAR_LEFT + 20, y + 11, f"{part}: {values}", "start"))
        y += 20
    return _svg(title, round(y + 4), drawn)


def _drawn(line: Line, points: Sequence[tuple[float, float]]) -> str:
    if line.is_dots:
        dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2"/>' for x, y in points)
        return f'<g style="fill:var(--{line.css})" fill-opacity="0.45">{dots}</g>'
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = ' stroke-dasharray="5 4"' if line.is_dashed else ""
    return (
        f'<polyline points="{path}" fill="none" stroke-width="2"{dash} '
        f'style="stroke:var(--{line.css})"/>'
    )


def _key(lines: Sequence[Line]) -> list[str]:
    parts: list[str] = []
    x = float(_LEFT)
    for line in lines:
        if not line.name:
            continue
        dash = ' stroke-dasharray="5 4"' if line.is_dashed else ""
        parts.append(
            f'<line x1="{x:.1f}" x2="{x + 20:.1f}" y1="14" y2="14" stroke-width="3"{dash} '
            f'style="stroke:var(--{line.css})"/>'
        )
        parts.append(_text(x + 26, 18, _short(line.name, 26), "start"))
        x += 44 + 7.2 * len(_short(line.name, 26))
    return parts


def _svg(title: str, height: int, parts: Sequence[str]) -> str:
    return "\n".join(
        [
            f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" xmlns="http://www.w3.org/2000/svg">',
            f"<title>{escape(title)}</title>",
            *parts,
            "</svg>",
        ]
    )


def _ticks(low: float, high: float) -> list[float]:
    """Return up to seven round values from `low` to `high`."""
    rough = (high - low) / 6
    power = 10 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(left: float, right: float) -> list[float]:
    """Return round values between two powers of ten, fewer where the axis is long."""
    factors = (1, 2, 5) if right - left < 2.2 else (1, 3) if right - left < 3.6 else (1,)
    powers = range(math.floor(left), math.ceil(right) + 1)
    found = [factor * 10.0**power for power in powers for factor in factors]
    return [value for value in found if left - 1e-9 <= math.log10(value) <= right + 1e-9]


def _short(name: str, most: int = 14) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _ys(y: float) -> str:
    return f'y1="{y:.1f}" y2="{y:.1f}"'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
