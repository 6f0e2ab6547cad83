"""News of sessions that no model call carries: what comes next, and what has ended. Pure."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, cast

from tenuto_vllm._wire import Turn
from tenuto_vllm.carriers import fits, foreign_id

TURNS_PATH = "/tenuto/turns"
END_PATH = "/tenuto/sessions/end"
PATHS = frozenset({TURNS_PATH, END_PATH})

MOST_BYTES = 64 * 1024
MOST_ITEMS = 256


class TurnNews(NamedTuple):
    """What is known of a session's wait since its last answer.

    `next`, `gap` (milliseconds) and `ttl` (seconds) mean what they mean in `X-Agent-Turn`;
    None is unknown.
    """

    session: str
    next: str | None = None
    gap: int | None = None
    ttl: int | None = None


class News(NamedTuple):
    """What was told at one time; every id is a valid session id.

    Attributes:
        turns: at most one for each item that was sent.
        ended: sessions that have finished.
    """

    turns: tuple[TurnNews, ...] = ()
    ended: tuple[str, ...] = ()


class NewsError(ValueError):
    """A body that holds no news at all; the message is meant for its sender."""


def read_news(path: str, body: bytes, dropped: list[str]) -> News:
    """Read the body of one of the two routes.

    | route | body |
    |---|---|
    | `/tenuto/turns` | `[{"session": id, "next": word, "gap": ms, "ttl": s}, …]` |
    | `/tenuto/sessions/end` | `{"sessions": [id, …]}` |

    An item without a session, and those past the 256th, are left out whole; of the other
    keys a bad value is left out alone and unknown keys are ignored.

    Args:
        path: one of `PATHS`.
        body: at most `MOST_BYTES`.
        dropped: gets a kind for everything left out: `news.item`, `news.session`,
            `news.next`, `news.gap`, `news.ttl`.

    Raises:
        NewsError: the body is not JSON of the route's shape.
    """
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise NewsError("The body is not valid JSON.") from error
    if path == TURNS_PATH:
        if not isinstance(value, list):
            raise NewsError(
                'The body must be an array: [{"session": "…", "next": "tool", "gap": 40000}].'
            )
        turns = (_turn(item, dropped) for item in _first(cast("list[Any]", value), dropped))
        return News(turns=tuple(turn for turn in turns if turn is not None))
    ids = cast("dict[str, Any]", value).get("sessions") if isinstance(value, dict) else None
    if not isinstance(ids, list):
        raise NewsError('The body must be an object with an array: {"sessions": ["…"]}.')
    ended = (_session(item, dropped) for item in _first(cast("list[Any]", ids), dropped))
    return News(ended=tuple(session for session in ended if session is not None))


def _first(items: list[Any], dropped: list[str]) -> list[Any]:
    dropped += ["news.item"] * (len(items) - MOST_ITEMS)
    return items[:MOST_ITEMS]


def _turn(item: Any, dropped: list[str]) -> TurnNews | None:
    if not isinstance(item, dict):
        dropped.append("news.item")
        return None
    told = cast("dict[str, Any]", item)
    session = _session(told.get("session"), dropped)
    if session is None:
        return None
    good: dict[str, Any] = {}
    for key in ("next", "gap", "ttl"):
        value = told.get(key)
        if value is not None and fits(Turn(**{key: value})):
            good[key] = value
        elif value is not None:
            dropped.append(f"news.{key}")
    return TurnNews(session, **good)


def _session(value: object, dropped: list[str]) -> str | None:
    session = foreign_id(value)
    if session is None:
        dropped.append("news.session")
    return session
