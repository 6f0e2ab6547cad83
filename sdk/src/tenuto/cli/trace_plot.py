"""The figures of traces as a picture. Needs matplotlib (`tenuto[tools]`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tenuto.cli.trace_info import samples_of
from tenuto.errors import ConfigError
from tenuto.trace.stats import TraceStats

_COLUMNS = 2
_UNITS = {"turns": "turns", "s": "seconds"}
# So few values are shown one by one.
_MARKED = 30
# A logarithmic axis over less than this has hardly a number on it.
_WIDE = 10


def draw(found: TraceStats, path: Path) -> None:
    """Draw the share of values at or below each length and gap.

    Raises:
        ConfigError: when matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError('a picture needs matplotlib: pip install "tenuto[tools]"') from error
    samples = [(name, sample.values) for name, sample in samples_of(found) if sample.values]
    gaps = [one for one in samples if one[0].startswith("gap")]
    panels = [[one] for one in samples if one not in gaps] + ([gaps] if gaps else [])
    rows = max(1, -(-len(panels) // _COLUMNS))
    figure: Any = Figure(figsize=(10, 2.6 * rows), layout="constrained")
    for place, lines in enumerate(panels):
        axes = figure.add_subplot(rows, _COLUMNS, place + 1)
        _panel(axes, lines)
    hits = f"{found.all.token_rate:.2%} of prompt tokens in a cache without end"
    figure.suptitle(f"{found.traces:,} traces, {found.calls:,} calls; {hits}")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _panel(axes: Any, lines: Sequence[tuple[str, Sequence[float]]]) -> None:
    for name, values in lines:
        ordered = sorted(values)
        shares = [(place + 1) / len(ordered) for place in range(len(ordered))]
        # A picture has no room for more points than this.
        step = max(1, len(ordered) // 2000)
        at = [ordered[0], *ordered[::step], ordered[-1]]
        axes.step(at, [0.0, *shares[::step], 1.0], where="post", label=name)
        if len(ordered) <= _MARKED:
            axes.plot(ordered, shares, "o", color=axes.lines[-1].get_color(), markersize=4)
    low = min(min(values) for _, values in lines)
    high = max(max(values) for _, values in lines)
    if high >= _WIDE * low and high > 1:
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlim(left=0 if low < 1 else low / 2, right=high * 2)
    else:
        room = (high - low) / 20 or max(abs(high) / 2, 1.0)
        axes.set_xlim(low - room, high + room)
    axes.set_ylim(0, 1.05)
    axes.grid(True, alpha=0.3)
    axes.set_ylabel("share at or below", fontsize=8)
    if lines[0][0].startswith("gap"):
        axes.set_title("gap to the next call, by the end of the answer", fontsize=10)
        axes.set_xlabel("seconds", fontsize=8)
        axes.legend(fontsize=8)
    else:
        axes.set_title(lines[0][0], fontsize=10)
        axes.set_xlabel(_unit(lines[0][0]), fontsize=8)


def _unit(name: str) -> str:
    return next((unit for sign, unit in _UNITS.items() if sign in name.split()), "tokens")
