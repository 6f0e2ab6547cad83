"""The W3C `baggage` header, which survives routers that drop every other of ours.

https://www.w3.org/TR/baggage/: members separated by commas, percent-encoded values,
properties after a semicolon; past 64 members or 8192 bytes nobody need pass it on.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

from tenuto_vllm._wire import Markers
from tenuto_vllm.carriers.values import foreign_id, foreign_text, own_markers

_BYTES = 8192
_MEMBERS = 64
_SESSION = "session.id"
_OURS = "tenuto."


def read_baggage(headers: Iterable[tuple[bytes, bytes]], dropped: list[str]) -> Markers | None:
    """Return the markers of a request's baggage.

    Args:
        headers: (name, value) pairs, names in lower case, any bytes; several `baggage` lines
            are one list.
        dropped: gets `baggage` for one past the limits, `baggage.<marker>` for bad values.
    """
    lines = [value for name, value in headers if name == b"baggage"]
    if not lines:
        return None
    raw = b",".join(lines)
    if len(raw) > _BYTES or raw.count(b",") >= _MEMBERS:
        dropped.append("baggage")
        return None
    members = _members(raw)
    if not members.get(_SESSION):
        return None
    session = foreign_id(foreign_text(members[_SESSION]))
    if session is None:
        dropped.append("baggage.session")
        return None
    said = {
        name.removeprefix(_OURS): value.decode("ascii", "replace")
        for name, value in members.items()
        if name.startswith(_OURS)
    }
    return own_markers(session, said, "baggage", dropped)


def _members(raw: bytes) -> dict[str, bytes]:
    """Return values by name, percent-decoded; of two members of one name the first counts."""
    members: dict[str, bytes] = {}
    for member in raw.split(b","):
        name, _, value = member.partition(b";")[0].partition(b"=")
        key = name.strip(b" \t").decode("ascii", "replace")
        members.setdefault(key, unquote_to_bytes(value.strip(b" \t")))
    return members
