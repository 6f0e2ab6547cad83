"""Values of other systems, and our own words outside our headers, checked one by one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from tenuto_vllm._wire import Markers, Turn, decode_turn, encode_turn, is_id, is_opaque

_FOREIGN_BYTES = 1024


def foreign_id(text: object) -> str | None:
    """Return the session id that stands for an id of another system.

    | `text` | id |
    |---|---|
    | of our shape (docs/protocol.md, `id-shape`), spaces around it apart | itself |
    | other visible text of at most 1 KB | 32 hex digits of its BLAKE2b |
    | anything else | None |

    The hash keeps the session together and cuts nothing off, so two long ids that begin alike
    stay two.
    """
    if not isinstance(text, str) or len(text) > _FOREIGN_BYTES:
        return None
    text = text.strip(" \t")
    if is_id(text):
        return text
    # A lone surrogate is not printable, so what passes can be encoded.
    if not text or not text.isprintable():
        return None
    raw = text.encode()
    if len(raw) > _FOREIGN_BYTES:
        return None
    return hashlib.blake2b(raw, digest_size=16, person=b"tenuto foreign").hexdigest()


def foreign_text(raw: bytes) -> str | None:
    """Return a header's value as text, or None when it is no UTF-8 or over 1 KB."""
    try:
        return raw.decode() if len(raw) <= _FOREIGN_BYTES else None
    except UnicodeDecodeError:
        return None


def fits(turn: Turn) -> bool:
    """Tell whether a turn of one key is within that key's limits, whatever its type."""
    try:
        return encode_turn(turn) != ""
    except TypeError:
        # JSON may hold a list where a word should be.
        return False


def own_markers(
    session: str, said: Mapping[str, object], carrier: str, dropped: list[str]
) -> Markers:
    """Return the markers of a session from the words of protocol 1 in another carrier.

    Args:
        session: a valid id.
        said: `parent`, `run`, `turn` (the text of `X-Agent-Turn`) and `affinity`, as far as
            they are there; values of any type.
        carrier: first part of the kinds in `dropped`.
        dropped: gets `<carrier>.<marker>` for each bad value.
    """
    bad: list[str] = []
    texts: dict[str, str] = {}
    for marker in ("parent", "run", "turn", "affinity"):
        value = said.get(marker)
        if value is None or value == "":
            continue
        fine = {"turn": str.isascii, "affinity": is_opaque}.get(marker, is_id)
        if isinstance(value, str) and fine(value):
            texts[marker] = value
        else:
            bad.append(marker)
    turn = decode_turn(texts["turn"].encode(), bad) if "turn" in texts else Turn()
    dropped.extend(f"{carrier}.{marker}" for marker in bad)
    return Markers(session, texts.get("parent"), texts.get("run"), turn, texts.get("affinity"))
