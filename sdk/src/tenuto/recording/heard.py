"""What became of a try: what its answer says, when that began, and whether it was whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tenuto.recording.answer import Said, read_cut, read_events, read_whole
from tenuto.tried import Tried

_MAX_DECODED_BYTES = 64 << 20

Chunk = tuple[float, bytes]
"""When a piece came, and the piece."""


class Heard(NamedTuple):
    """An answer, as far as there is one.

    Attributes:
        first_token_s: when its first piece came, where it was streamed.
        error: kind of the failure, None when it was answered whole.
    """

    said: Said = Said()
    first_token_s: float | None = None
    error: str | None = None


def heard_of(tried: Tried) -> Heard:
    """Return what became of a try that is complete."""
    try:
        said, first_token_s = _said(tried)
    except Exception:
        # Whatever it says, the call is recorded.
        said, first_token_s = Said(), None
    return Heard(said, first_token_s, _error(tried, said))


def _said(tried: Tried) -> tuple[Said, float | None]:
    if tried.response is None:
        return Said(), None
    is_events = tried.response.headers.get("content-type", "").startswith("text/event-stream")
    if not tried.is_streamed:
        return (read_events if is_events else read_whole)(tried.content), None
    pieces = _pieces(tried)
    content = b"".join(piece for _, piece in pieces)
    if not is_events:
        return (read_cut if tried.start_chunks else read_whole)(content), None
    said = read_events(content)
    first_token_s = _came_s(pieces, said.first_at)
    if tried.start_chunks:
        # Of a text without its middle nothing is said.
        said = said._replace(text="", output_bytes=None, calls=())
    return said, first_token_s


def _came_s(pieces: Iterable[Chunk], first_at: int | None) -> float | None:
    at = 0
    for came_s, piece in pieces:
        at += len(piece)
        if first_at is not None and at >= first_at:
            return came_s
    return None


def _pieces(tried: Tried) -> list[Chunk]:
    """Return an answer as its server wrote it, before it was compressed."""
    encoding = tried.response.headers.get("content-encoding")
    if encoding is None:
        return [*tried.start_chunks, *tried.chunks]
    # What is compressed cannot be read on after something is missing.
    pieces: list[Chunk] = []
    passed: list[float] = []

    def passing() -> Iterator[bytes]:
        for came_s, chunk in tried.start_chunks or tried.chunks:
            passed.append(came_s)
            yield chunk

    head = {"content-encoding": encoding}
    size = 0
    try:
        # The HTTP client's own kind of answer, which knows every encoding that it asks for.
        for piece in type(tried.response)(200, headers=head, content=passing()).iter_bytes():
            pieces.append((passed[-1], piece))
            size += len(piece)
            if size > _MAX_DECODED_BYTES:
                break
    except Exception:
        # One that was broken off: what came before can be read.
        return pieces
    return pieces


def _error(tried: Tried, said: Said) -> str | None:
    if (tried.status or 0) >= 400:
        return str(tried.status)
    if said.error is not None:
        return said.error
    # A reader that has the end may close, which its transport takes for a failure.
    if said.ended:
        return None
    if tried.start_chunks and tried.is_whole and tried.error is None:
        return None
    return tried.error or "Incomplete"
