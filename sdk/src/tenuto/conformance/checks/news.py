"""What a client tells a server of protocol 1 between its turns."""

from __future__ import annotations

from typing import Any

from tenuto import _wire
from tenuto.conformance.captured import Request
from tenuto.conformance.seen import Seen
from tenuto.conformance.shapes import record, sequence, text
from tenuto.conformance.verdicts import Proof, Verdict, failed, not_seen, passed

_TURNS = "/tenuto/turns"
_END = "/tenuto/sessions/end"
_MAX_ITEMS = 256
_MAX_BYTES = 64 * 1024


def told(seen: Seen) -> Verdict:
    """news-told: news goes to an origin that has answered, and what is refused costs nothing."""
    news = _news(seen, "/tenuto/")
    for one in news:
        answered = (r for r in seen.requests if r.origin == one.origin and r.token is not None)
        if not any(r.answered_s <= one.at_s for r in answered):
            return failed("news goes to an origin that has not answered", _shown(one))
    if not news:
        return _NONE
    refused = [one for one in news if one.outcome == "500"]
    after = [r for r in seen.calls if refused and r.number > refused[0].number]
    if not after:
        return not_seen("no call was made after news that was refused")
    shown = (_shown(refused[0]), Proof(after[0].number, "next call", after[0].path))
    return passed(f"{len(news)} pieces, the first of them refused", *shown)


def turns(seen: Seen) -> Verdict:
    """news-turns: what follows a turn is told in the protocol's words."""
    news = _news(seen, _TURNS)
    for one in news:
        items = sequence(one.body)
        if not items or not all(map(_is_turn, items)):
            return failed("what follows a turn is told in other words", _shown(one))
    return passed(f"{len(news)} in its words", _shown(news[0])) if news else _NONE


def ended(seen: Seen) -> Verdict:
    """news-end: ended sessions are told in the protocol's words."""
    news = _news(seen, _END)
    for one in news:
        ids = sequence(record(one.body).get("sessions"))
        if not ids or not all(_wire.is_id(text(session)) for session in ids):
            return failed("ended sessions are told in other words", _shown(one))
    if news:
        return passed(f"{len(news)} in its words", _shown(news[0]))
    return not_seen("no session is told to have ended")


def bounds(seen: Seen) -> Verdict:
    """news-bounds: one piece of news holds at most 256 items and 64 KiB."""
    news = _news(seen, "/tenuto/")
    sizes: list[tuple[int, Request]] = []
    for one in news:
        items = sequence(one.body) or sequence(record(one.body).get("sessions"))
        size = int(one.header("content-length") or 0)
        if len(items) > _MAX_ITEMS or size > _MAX_BYTES:
            return failed("more than 256 items or 64 KiB at once", _shown(one))
        sizes.append((size, one))
    if not sizes:
        return _NONE
    size, largest = max(sizes, key=lambda pair: pair[0])
    return passed(f"{size} bytes at most", _shown(largest))


def _is_turn(value: Any) -> bool:
    item = record(value)
    said = item.get("next")
    numbers = (item.get(name) for name in ("gap", "ttl"))
    return (
        _wire.is_id(text(item.get("session")))
        and (said is None or said in _wire.NEXTS)
        and all(one is None or (type(one) is int and one >= 0) for one in numbers)
    )


def _news(seen: Seen, path: str) -> list[Request]:
    return [r for r in seen.requests if r.method == "POST" and path in r.path]


def _shown(request: Request) -> Proof:
    return Proof(request.number, "news", request.path)


_NONE = not_seen("the client tells no news")
