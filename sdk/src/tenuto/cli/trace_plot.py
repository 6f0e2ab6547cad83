"""The figures of traces as a picture. Needs matplotlib (`tenuto[tools]`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tenuto.cli.trace_info import samples_of
from tenuto.errors import ConfigError
from tenuto.trace.stats import TraceStats

_COLUMNS = 2


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
    rows = -(-len(panels) // _COLUMNS)
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
        axes.step([*ordered[::step], ordered[-1]], [*shares[::step], 1.0], where="post", label=name)
    axes.set_xscale("symlog", linthresh=1)
    axes.set_ylim(0, 1)
    axes.grid(True, alpha=0.3)
    if len(lines) > 1:
        axes.set_title("gap to the next call, seconds", fontsize=10)
        axes.legend(fontsize=8)
    else:
        axes.set_title(lines[0][0], fontsize=10)
