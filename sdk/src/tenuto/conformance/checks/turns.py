"""Turns: a prompt that is new advances them, a try of the same prompt does not."""

from __future__ import annotations

from collections import defaultdict

from tenuto.conformance.captured import Request
from tenuto.conformance.seen import Seen
from tenuto.conformance.verdicts import Verdict, failed, not_seen, passed

# A prompt that comes again after more others than this counts as new (id-turn).
_WINDOW = 8


class _Session:
    """What one session has counted so far."""

    def __init__(self) -> None:
        self.recent: dict[str, Request] = {}
        self.counted: dict[int, Request] = {}
        self.open: list[Request] = []


def turn(seen: Seen) -> Verdict:
    """id-turn: the index advances by one with a new prompt, the attempt with each try."""
    sessions: dict[str, _Session] = defaultdict(_Session)
    again: list[tuple[Request, Request]] = []
    further: list[tuple[Request, Request]] = []
    for request in seen.marked:
        said = seen.said(request)
        if said.n is None or request.prompt is None:
            continue
        session = sessions[said.session or ""]
        before = session.recent.pop(request.prompt.digest, None)
        session.recent[request.prompt.digest] = request
        while len(session.recent) > _WINDOW:
            session.recent.pop(next(iter(session.recent)))
        if before is not None:
            if (bad := _tried_again(seen, before, request)) is not None:
                return bad
            again.append((before, request))
        else:
            last = max(session.counted, default=None)
            is_alone = all(one.end_s <= request.at_s for one in session.open)
            if (bad := _advanced(seen, session.counted, request, is_alone=is_alone)) is not None:
                return bad
            if last is not None:
                further.append((session.counted[last], request))
        session.counted.setdefault(said.n, request)
        session.open = [one for one in session.open if one.end_s > request.at_s] + [request]
    if not further:
        return not_seen("no session with a turn index went on to a further turn")
    why = f"{len(further)} new prompts advance it, {len(again)} further tries do not"
    pair = again[0] if again else further[0]
    return passed(why, *(seen.shown(one, "n") for one in (*pair, further[0][1])))


def _tried_again(seen: Seen, before: Request, request: Request) -> Verdict | None:
    one, two = seen.said(before), seen.said(request)
    if one.n != two.n:
        proof = (seen.shown(before, "n"), seen.shown(request, "n"))
        return failed("the same prompt tried again counts as another turn", *proof)
    if one.attempt is not None and (two.attempt is None or two.attempt <= one.attempt):
        proof = (seen.shown(before, "attempt"), seen.shown(request, "attempt"))
        return failed("the same prompt tried again is not a further attempt", *proof)
    return None


def _advanced(
    seen: Seen, counted: dict[int, Request], request: Request, *, is_alone: bool
) -> Verdict | None:
    n = seen.said(request).n or 0
    if n in counted:
        proof = (seen.shown(counted[n], "n"), seen.shown(request, "n"))
        return failed("two prompts of one session count as one turn", *proof)
    last = max(counted, default=None)
    if last is not None and is_alone and n != last + 1:
        proof = (seen.shown(counted[last], "n"), seen.shown(request, "n"))
        return failed("a new prompt does not advance the turn by one", *proof)
    return None
