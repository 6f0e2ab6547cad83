"""How figures of a comparison are written. Pure."""

from __future__ import annotations

from tenuto.compare import Estimate, Figure


def value_text(value: float, unit: str, *, signed: bool = False) -> str:
    """Return a value with its unit, such as `12 ms`, `3.4 s`, `95.30 %`, `$0.0077`."""
    sign = "+" if signed and value > 0 else "-" if value < 0 else ""
    size = abs(value)
    if unit == "s":
        text = _time(size)
    elif unit == "share":
        text = f"{size:.2%}".replace("%", " %")
    elif unit == "usd":
        text = f"${size:,.4g}"
    elif unit == "tokens/s":
        text = f"{size:,.1f}" if size < 1000 else f"{size:,.0f}"
    else:
        text = f"{size:,.0f}"
    return sign + text


def estimate_text(estimate: Estimate, unit: str, *, signed: bool = False) -> str:
    """Return a value with its interval in brackets, where it has one."""
    text = value_text(estimate.value, unit, signed=signed)
    if estimate.low is None or estimate.high is None:
        return text
    low, high = (value_text(end, unit, signed=signed) for end in (estimate.low, estimate.high))
    return f"{text} [{low}, {high}]"


def change_text(figure: Figure) -> str:
    """Return the change in percent of the base; a dash when the base is 0."""
    return "-" if figure.change is None else f"{figure.change:+.1%}".replace("%", " %")


def mark(figure: Figure) -> str:
    """Return what is claimed of a figure: nothing, `different`, `better` or `worse`."""
    if not figure.is_different:
        return ""
    if figure.better == "neither":
        return "different"
    is_less = figure.difference.value < 0
    return "better" if is_less == (figure.better == "less") else "worse"


def resampled_text(unit: str, clusters: int, repeats: tuple[int, int]) -> str:
    """Return what the intervals are made of."""
    both = f"{repeats[0]}" if repeats[0] == repeats[1] else f"{repeats[0]} and {repeats[1]}"
    return f"95 % bootstrap intervals over {clusters} {unit} and {both} repeats inside"


def share_text(share: float) -> str:
    """Return a share in whole percent, without a negative zero."""
    return f"{share + 0.0:.0%}".replace("-0%", "0%").replace("%", " %")


def _time(size: float) -> str:
    value, name = (size, "s") if size >= 1 else (size * 1000, "ms")
    digits = 1 if value >= 10 else 2
    return f"{value:,.{0 if value >= 1000 else digits}f} {name}"
