"""What the engine is told of a request's session, as one text that fits every carrier. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from tenuto_vllm import _wire

MOST_CHARACTERS = 2048
"""vLLM takes no longer session id."""

ACTION = "tenuto.turn"
"""The type of our action in vLLM's `KvHintsEnvelope`."""

_PART = re.compile(r"[A-Za-z0-9._~-]{0,512}")


class Hint(NamedTuple):
    """The markers of one request.

    Attributes:
        session: whose turn it is: the tenant's tag, a dot and the session id; never empty.
        run: its run id, empty where unknown.
        parent: the session that it was forked from, as `session`; empty without one.
        turn: the values of `X-Agent-Turn`.
    """

    session: str
    run: str = ""
    parent: str = ""
    turn: _wire.Turn = _wire.Turn()


def tenant_of(session: str) -> str:
    """Return the tag of a session's tenant, empty without one."""
    return session.rpartition(".")[0]


def id_of(session: str) -> str:
    """Return a session's id as its client knows it."""
    return session.rpartition(".")[2]


def pack(hint: Hint) -> str:
    """Return at most 2048 visible ASCII characters and spaces, or "" for a bad session."""
    parts = (hint.session, hint.run, hint.parent)
    if not hint.session or not all(map(_PART.fullmatch, parts)):
        return ""
    return ";".join((*parts, _wire.encode_turn(hint.turn)))


def unpack(text: object) -> Hint | None:
    """Read what `pack` wrote; None for anything else. A bad value of the turn is left out."""
    if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
        return None
    parts = text.split(";", 3)
    if len(parts) != 4 or not parts[0] or not all(map(_PART.fullmatch, parts[:3])):
        return None
    session, run, parent, turn = parts
    return Hint(session, run, parent, _wire.decode_turn(turn.encode("utf-8", "replace"), []))
