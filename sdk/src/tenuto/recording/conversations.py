"""What a response was made of, for requests that name it and bring only what is added."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from tenuto.recording.answer import Said
from tenuto.recording.body import Asked

_MAX_BYTES = 64 << 20
_MAX_RESPONSES = 16_384


class Conversations:
    """Remembers the latest responses, as far as they passed here and there is room."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._room = max_bytes
        self._of: OrderedDict[str, tuple[bytes, ...]] = OrderedDict()

    def whole(self, asked: Asked) -> Asked:
        """Return a prompt with what it goes on from, where that is known."""
        before = self._of.get(asked.after) if asked.after is not None else None
        if before is None:
            return asked
        at = asked.head
        items = (*asked.items[:at], *before, *asked.items[at:])
        return asked._replace(items=items, is_partial=False)

    def note(self, asked: Asked, said: Said) -> None:
        """Remember what a later request may go on from."""
        if said.response_id is None or asked.is_partial:
            return
        self._room += _size(self._of.pop(said.response_id, ()))
        items = self._of[said.response_id] = (*asked.items[asked.head :], *said.output)
        # As if nothing were shared between responses, though most of it is.
        self._room -= _size(items)
        while self._of and (self._room < 0 or len(self._of) > _MAX_RESPONSES):
            self._room += _size(self._of.popitem(last=False)[1])


def _size(items: Iterable[bytes]) -> int:
    return sum(map(len, items))
