"""Protocol 1 on the wire: header names, limits, encode and decode.

Standard library only, and the same bytes in `tenuto` and `tenuto_vllm` (as is
`_structured.py`), so that neither distribution depends on the other. The normative text is
docs/protocol.md. Nothing here raises on what a peer sent: a bad value is left out and named in
`Decoded.dropped`. The values are named tuples: they are made on every request, and a
frozen dataclass of this many fields takes six times as long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeGuard

from ._structured import Token, parse_dictionary

SESSION = "X-Session-ID"
SESSION_AFFINITY = "X-Session-Affinity"
PARENT = "X-Parent-Session-ID"
RUN = "X-Agent-Run-ID"
TURN = "X-Agent-Turn"
AFFINITY = "X-Agent-Affinity"
SERVED = "X-Agent-Served"

PHASES = frozenset({"start", "user", "tool", "child", "handoff", "compact", "resume"})
NEXTS = frozenset({"tool", "user", "child", "end", "unknown"})
CLASSES = frozenset({"main", "subagent", "workflow", "compaction", "auxiliary"})
FORKS = frozenset({"fresh", "inherit"})
WHYS = frozenset({"home", "first", "parent", "hash", "moved", "unkeyed"})

TURN_BYTES = 256
AFFINITY_BYTES = 128
MAX_AT = 4

_ID = re.compile(r"(?!.*_[tr][0-9]+\Z)[A-Za-z0-9][A-Za-z0-9_-]{7,63}")
_OPAQUE = re.compile(r"[\x21-\x7e]{1,128}")
_TOKEN_PARTS = re.compile(r"([A-Za-z0-9_-]{1,64})\.(0|[1-9][0-9]{0,4})(?:\.[A-Za-z0-9_-]{1,60})?")

# Inclusive bounds. With every key at its longest and `drop` absent the dictionary
# is 205 bytes, so only `drop` can meet the 256-byte limit.
_INTS = {
    "n": (0, 999_999_999),
    "attempt": (0, 999),
    "gap": (0, 999_999_999),
    "ttl": (0, 99_999_999),
    "append": (0, 999_999_999),
    "prefix": (0, 999_999_999),
    "keep": (0, 999_999_999),
    "prio": (-8, 8),
}
_TOKENS = {"phase": PHASES, "next": NEXTS, "class": CLASSES, "fork": FORKS}
# In the order of the fields of `Turn`; only `class` has another name there.
_KEYS = (
    *("n", "attempt", "phase", "next", "gap", "ttl", "append", "prefix", "keep"),
    *("at", "class", "fork", "prio", "drop"),
)


class Turn(NamedTuple):
    """The `X-Agent-Turn` dictionary; None (or empty) means the key is absent.

    Units: `gap` milliseconds, `ttl` seconds, `append`/`prefix`/`keep` tokens, `at`
    message indices (at most 4), `prio` -8..8 where higher is more urgent. `kind` is
    the wire key `class`; `drop` holds ids of sessions that have finished.
    """

    n: int | None = None
    attempt: int | None = None
    phase: str | None = None
    next: str | None = None
    gap: int | None = None
    ttl: int | None = None
    append: int | None = None
    prefix: int | None = None
    keep: int | None = None
    at: tuple[int, ...] = ()
    kind: str | None = None
    fork: str | None = None
    prio: int | None = None
    drop: tuple[str, ...] = ()


class Markers(NamedTuple):
    """Everything one request says of itself. `session` is always a valid id."""

    session: str
    parent: str | None = None
    run: str | None = None
    turn: Turn = Turn()
    affinity: str | None = None


class Decoded(NamedTuple):
    """What a request's headers said, and the kinds of marker that were left out.

    `dropped` holds fixed words only (a header's role, or `turn.<key>`), so it is safe
    as a metric label.
    """

    markers: Markers | None
    dropped: tuple[str, ...] = ()


class Served(NamedTuple):
    """The `X-Agent-Served` answer; `lease` in seconds."""

    rank: int | None = None
    home: int | None = None
    why: str | None = None
    lease: int | None = None


def is_id(text: str) -> bool:
    """Tell whether `text` is a run or session id (docs/protocol.md, identity rule 1)."""
    return _ID.fullmatch(text) is not None


def is_opaque(text: str) -> bool:
    """Tell whether `text` may be echoed as an affinity token: 1-128 visible ASCII."""
    return _OPAQUE.fullmatch(text) is not None


def affinity_token(instance: str, rank: int) -> str:
    """Return the token that names `rank` of the server called `instance`."""
    return f"{instance}.{rank}"


def parse_affinity(token: str) -> tuple[str, int] | None:
    """Return (instance, rank) of a token, or None when it is not one of ours."""
    parts = _TOKEN_PARTS.fullmatch(token)
    return (parts[1], int(parts[2])) if parts else None


def encode(markers: Markers) -> dict[str, str]:
    """Return the request headers for `markers`, at most 1 KB together.

    A field outside its limits is left out; an invalid session leaves out all. Of
    `drop`, as many leading ids go as the 256 bytes of `X-Agent-Turn` hold.
    """
    if not is_id(markers.session):
        return {}
    headers = {SESSION: markers.session, SESSION_AFFINITY: markers.session}
    if markers.parent is not None and is_id(markers.parent):
        headers[PARENT] = markers.parent
    if markers.run is not None and is_id(markers.run):
        headers[RUN] = markers.run
    if turn := encode_turn(markers.turn):
        headers[TURN] = turn
    if markers.affinity is not None and is_opaque(markers.affinity):
        headers[AFFINITY] = markers.affinity
    return headers


def encode_turn(turn: Turn) -> str:
    """Return the RFC 9651 dictionary of `turn`, at most 256 bytes, "" when empty."""
    parts: list[str] = []
    for key, value in zip(_KEYS, turn, strict=True):
        if value is None or value == ():
            continue
        if key == "drop":
            room = TURN_BYTES - sum(map(len, parts)) - 2 * len(parts)
            ids = _leading_ids(turn.drop, room - len('drop=""'))
            if ids:
                parts.append(f'drop="{ids}"')
        elif key == "at":
            if _is_at(turn.at):
                parts.append(f"at=({' '.join(map(str, turn.at))})")
        elif _fits(key, value):
            parts.append(f"{key}={value}")
    return ", ".join(parts)


def decode(headers: Iterable[tuple[bytes, bytes]]) -> Decoded:
    """Read the markers of one request.

    Args:
        headers: (name, value) pairs as ASGI gives them, any order, any bytes.

    Returns:
        `markers` is None when no valid session id is there. The first of two equal
        names wins, except `X-Agent-Turn`, whose lines join as RFC 9651 says.
    """
    found: dict[str, bytes] = {}
    for name, value in headers:
        role = _ROLES.get(name) or _ROLES.get(name.lower())
        if role is None:
            continue
        if role not in found:
            found[role] = value
        elif role == "turn" and len(found[role]) <= TURN_BYTES:
            # Past the limit it is dropped anyway; joining a flood would cost its square.
            found[role] += b", " + value
    if not found:
        return _NOTHING
    dropped: list[str] = []
    session = _text(found, "session", is_id, dropped) or _text(found, "alias", is_id, dropped)
    parent = _text(found, "parent", is_id, dropped)
    run = _text(found, "run", is_id, dropped)
    affinity = _text(found, "affinity", is_opaque, dropped)
    turn = decode_turn(found["turn"], dropped) if "turn" in found else Turn()
    markers = Markers(session, parent, run, turn, affinity) if session else None
    return Decoded(markers, tuple(dropped))


def decode_turn(raw: bytes, dropped: list[str]) -> Turn:
    """Read an `X-Agent-Turn` value; what is bad is appended to `dropped`."""
    try:
        if len(raw) > TURN_BYTES:
            raise ValueError
        items = parse_dictionary(raw.decode("ascii"))
    except ValueError:
        dropped.append("turn")
        return Turn()
    good: dict[str, Any] = {}
    for key, value in items.items():
        if key not in _FIELDS:
            continue
        held, fine = _checked(key, value)
        if fine:
            good[_FIELDS[key]] = held
        else:
            dropped.append(f"turn.{key}")
    return Turn(**good)


def encode_served(served: Served) -> str:
    """Return the value of `X-Agent-Served`."""
    fields = (("rank", served.rank), ("home", served.home), ("why", served.why))
    parts = [f"{key}={value}" for key, value in (*fields, ("lease", served.lease))]
    return ", ".join(part for part in parts if not part.endswith("=None"))


def decode_served(value: str) -> Served | None:
    """Read `X-Agent-Served`; None when it is not a dictionary of protocol 1."""
    try:
        items = parse_dictionary(value)
    except ValueError:
        return None
    why = items.get("why")
    return Served(
        rank=_count(items.get("rank")),
        home=_count(items.get("home")),
        why=str(why) if type(why) is Token and why in WHYS else None,
        lease=_count(items.get("lease")),
    )


def _count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _checked(key: str, value: Any) -> tuple[Any, bool]:
    """Return a member's value as `Turn` holds it, and whether it may stand there."""
    if key == "drop":
        ids = tuple(value.split(" ")) if type(value) is str else ("",)
        return ids, all(map(is_id, ids))
    if key == "at":
        indices = tuple(value) if _is_list(value) else ()
        return indices, _is_at(indices)
    if key in _TOKENS:
        return str(value), type(value) is Token and value in _TOKENS[key]
    return value, _fits(key, value)


def _fits(key: str, value: object) -> bool:
    if key in _INTS:
        low, high = _INTS[key]
        return type(value) is int and low <= value <= high
    return value in _TOKENS[key]


def _is_at(value: tuple[Any, ...]) -> bool:
    return 1 <= len(value) <= MAX_AT and all(type(i) is int and abs(i) <= 9999 for i in value)


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _leading_ids(ids: tuple[str, ...], room: int) -> str:
    text = ""
    for one in ids:
        longer = f"{text} {one}" if text else one
        if not is_id(one) or len(longer) > room:
            break
        text = longer
    return text


def _text(
    found: Mapping[str, bytes], role: str, fine: Callable[[str], bool], dropped: list[str]
) -> str | None:
    raw = found.get(role)
    if raw is None:
        return None
    # The length comes first: a 9 kB value must not cost a decode and a scan.
    text = raw.decode("ascii", "replace").strip(" \t") if len(raw) <= AFFINITY_BYTES else ""
    if fine(text):
        return text
    dropped.append("session" if role == "alias" else role)
    return None


_ROLES = {
    name.lower().encode(): role
    for name, role in (
        (SESSION, "session"),
        (SESSION_AFFINITY, "alias"),
        (PARENT, "parent"),
        (RUN, "run"),
        (TURN, "turn"),
        (AFFINITY, "affinity"),
    )
}
_FIELDS = dict(zip(_KEYS, Turn._fields, strict=True))
_NOTHING = Decoded(None)
