"""The colour scale of cached shares, safe for colour-blind readers. Pure."""

from __future__ import annotations

# Okabe and Ito's vermilion and blue with a light middle: the ends differ in hue and
# the middle in lightness, for every common kind of colour blindness.
_STOPS = ((0.0, (213, 94, 0)), (0.5, (240, 228, 205)), (1.0, (0, 94, 162)))
SCALE_STOPS = (0.0, 0.25, 0.5, 0.75, 1.0)


def colour_of(share: float) -> str:
    """Return `#rrggbb` for a share; what is outside of 0..1 takes the nearer end."""
    share = min(1.0, max(0.0, share))
    (left, low), (right, high) = (_STOPS[0], _STOPS[1]) if share < 0.5 else (_STOPS[1], _STOPS[2])
    part = (share - left) / (right - left)
    channels = [round(a + (b - a) * part) for a, b in zip(low, high, strict=True)]
    return "#" + "".join(f"{channel:02x}" for channel in channels)


def ink_on(share: float) -> str:
    """Return the colour of text that is readable on `colour_of(share)`."""
    return "#000000" if share < 0.89 else "#ffffff"
