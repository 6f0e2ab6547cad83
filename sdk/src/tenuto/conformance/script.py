"""What goes wrong when: the same at every run of one program. Pure.

A prompt is refused at most twice, so a client with ordinary retries gets through; what is
rarer than a refusal happens once in a recording.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from tenuto.conformance.captured import Place

# `500`, `429`: an error that asks for a retry at once. `drop`: the connection ends without an
# answer. `stall`: the answer comes late. `redirect`: 307 to the other origin. `garbled`: the
# answer's markers are malformed.
Trouble = Literal["500", "429", "drop", "stall", "redirect", "garbled"]
TROUBLES: tuple[Trouble, ...] = ("500", "429", "drop", "stall", "redirect", "garbled")
ONCE = frozenset[Trouble]({"drop", "stall", "redirect", "garbled"})

# One row for each opening of a history, one cell for each depth, one step for each try.
_ROWS: tuple[tuple[tuple[Trouble, ...], ...], ...] = (
    (("500",), ("redirect",), ("garbled",), ("429", "500"), ("drop",), ("stall",)),
    (("429",), ("drop",), ("stall",), ("redirect",), ("500", "429")),
    (("500", "429"), ("stall",), ("redirect",), ("garbled",)),
    (("redirect",), ("drop",), ("500",)),
    (("stall",), ("500", "429"), ("garbled",)),
    (("drop",), ("garbled",), ("429",)),
)


class Script:
    """Hands out the troubles of one recording."""

    def __init__(self, without: Collection[str] = ()) -> None:
        self._spent = set(without)

    def next(self, place: Place, *, is_marked: bool) -> Trouble | None:
        """Return what goes wrong with a request, None when it is answered as it should be.

        Args:
            place: where its prompt stands.
            is_marked: it carries a session marker; a redirect shows nothing without.
        """
        row = _ROWS[place.row % len(_ROWS)]
        steps = row[place.depth] if place.depth < len(row) else ()
        if place.tries >= len(steps):
            return None
        trouble = steps[place.tries]
        if trouble in self._spent or (trouble == "redirect" and not is_marked):
            return None
        if trouble in ONCE:
            self._spent.add(trouble)
        return trouble
