"""What one request said, and in which carrier."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tenuto_vllm._wire import Markers, Turn

Carrier = Literal["headers", "alias", "body", "vllm_xargs", "baggage", "content"]


class Said(NamedTuple):
    """The markers of one request.

    Attributes:
        markers: None when no carrier gave a session.
        dropped: kinds of marker that were left out: fixed words, safe as metric labels.
        carrier: where the markers come from; means nothing without them.
    """

    markers: Markers | None
    dropped: tuple[str, ...] = ()
    carrier: Carrier = "headers"

    @property
    def echoes(self) -> bool:
        """Whether this client can be expected to send back the token of its last answer.

        Only who sends protocol 1's headers is known to; what travels in another carrier does
        so because no header of ours is known to it, or because headers do not survive.
        """
        return self.carrier == "headers"

    def says_more_than(self, first: Said) -> bool:
        """Whether this is the same session as `first`, with its turn or its token too."""
        if self.markers is None or first.markers is None:
            return False
        richer = self.markers.turn != Turn() or self.markers.affinity is not None
        return richer and self.markers.session == first.markers.session
