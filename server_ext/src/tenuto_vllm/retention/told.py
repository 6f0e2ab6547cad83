"""News of sessions as an engine gets it: of waits that have begun, and of ends. Pure."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, cast

_FIELDS = 4
_MOST = 1e12


class ToldTurn(NamedTuple):
    """What is known of a session's wait; None is unknown.

    `following` is `next` of `X-Agent-Turn`; `gap_s` and `ttl_s` are seconds.
    """

    session: str
    following: str | None = None
    gap_s: float | None = None
    ttl_s: float | None = None


class Told(NamedTuple):
    """What was told at one time."""

    turns: tuple[ToldTurn, ...] = ()
    ended: tuple[str, ...] = ()


def read_told(text: object) -> Told:
    """Read news; it never raises.

    Args:
        text: a JSON object of `turns`, an array of [session, next, gap in ms, ttl in s], and
            `ended`, an array of sessions. What is of another shape is left out.
    """
    try:
        news: Any = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        news = None
    if not isinstance(news, dict):
        return Told()
    said = cast("dict[str, Any]", news)
    turns = (_turn(item) for item in _items(said.get("turns")))
    ended = (item for item in _items(said.get("ended")) if isinstance(item, str))
    return Told(tuple(turn for turn in turns if turn is not None), tuple(ended))


def _turn(item: Any) -> ToldTurn | None:
    fields = _items(item)
    if len(fields) != _FIELDS or not isinstance(fields[0], str):
        return None
    session, following, gap_ms, ttl_s = fields
    gap_ms, ttl_s = _number(gap_ms), _number(ttl_s)
    gap_s = None if gap_ms is None else gap_ms / 1000.0
    return ToldTurn(session, following if isinstance(following, str) else None, gap_s, ttl_s)


def _items(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < _MOST else None
