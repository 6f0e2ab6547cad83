"""The markers as members of W3C baggage. Off unless a dialect asks for it. Pure.

It is the one header of a client's that vllm-router's prefill/decode mode keeps.

https://github.com/w3c/baggage/blob/main/baggage/HTTP_HEADER_FORMAT.md
"""

from __future__ import annotations

from urllib.parse import quote

from tenuto import _wire

_MAX_BYTES = 8192
_MAX_MEMBERS = 64
_SESSION = "session.id"
_OURS = "tenuto."
# The baggage octets of the format, less the percent sign that escapes the others.
_SAFE = "!#$&'()*+-./:<=>?@[]^_`{|}~"


def with_markers(existing: str, markers: _wire.Markers, turn: str) -> str | None:
    """Return the header's value with the markers in it, None to leave it as it is.

    Left as it is: one that names a session or has a member of ours (the caller decides),
    and one that the markers would make larger than every system must let through.

    Args:
        existing: the caller's own value, empty for none.
        markers: what the request says of itself.
        turn: the `X-Agent-Turn` text, empty for none.
    """
    members = [member for member in existing.split(",") if member.strip()]
    if any(_is_ours(member) for member in members):
        return None
    said = {
        _SESSION: markers.session,
        f"{_OURS}parent": markers.parent,
        f"{_OURS}run": markers.run,
        f"{_OURS}turn": turn,
        f"{_OURS}affinity": markers.affinity,
    }
    members += [f"{key}={quote(value, safe=_SAFE)}" for key, value in said.items() if value]
    value = ",".join(members)
    fits = len(members) <= _MAX_MEMBERS and len(value.encode()) <= _MAX_BYTES
    return value if fits else None


def without_markers(value: str) -> str:
    """Return a value of `with_markers` as the caller had it, for a stranger's origin."""
    return ",".join(member for member in value.split(",") if not _is_ours(member))


def _is_ours(member: str) -> bool:
    key = member.partition("=")[0].strip()
    return key == _SESSION or key.startswith(_OURS)
