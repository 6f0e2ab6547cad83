"""Affinity tokens: back to the origin and the session that got them, and nowhere else."""

from __future__ import annotations

from tenuto.conformance.app import GARBLED
from tenuto.conformance.captured import Request
from tenuto.conformance.seen import Seen
from tenuto.conformance.verdicts import Proof, Verdict, failed, not_expressible, not_seen, passed


def echo(seen: Seen) -> Verdict:
    """affinity-echo: a session's next call carries the token of its last answer."""
    proven: list[tuple[Request, Request, Proof]] = []
    for request in seen.marked:
        session = seen.said(request).session or ""
        given = _given(seen, session, request)
        if not given:
            continue
        carried = _carried(seen, request)
        last = given[-1]
        if carried is None or carried.value not in {one.token for one in given}:
            sent = carried or Proof(request.number, "x-agent-affinity", "")
            why = "a session's next call does not carry the token of its last answer"
            return failed(why, Proof(last.number, "answer's token", last.token or ""), sent)
        proven.append((last, request, carried))
    if not proven:
        return not_seen("no session went on after an answer that gave a token")
    last, _, carried = proven[0]
    proof = Proof(last.number, "answer's token", last.token or "")
    return passed(f"{len(proven)} calls carry it", proof, carried)


def origin(seen: Seen) -> Verdict:
    """wire-token: a token goes to the origin and in the session that it was given to."""
    givers = {request.token: request for request in seen.requests if request.token}
    carried_count = 0
    first: tuple[Request, Proof] | None = None
    for request in seen.requests:
        for name, raw in request.headers:
            value = raw.decode("latin-1")
            sent = Proof(request.number, name.decode("latin-1"), value)
            if value == GARBLED.decode():
                return failed("an answer's malformed token is sent back", sent)
            giver = givers.get(value)
            if giver is None:
                continue
            given = Proof(giver.number, "answer's token", value)
            if giver.origin != request.origin:
                return failed("a token is sent to an origin that did not give it", given, sent)
            if not _may_carry(seen, giver, request):
                return failed("a token is sent in another session", given, sent)
            carried_count += 1
            first = first or (giver, sent)
    if first is None and "affinity" not in seen.roles:
        return not_expressible("its dialect sends no token back")
    if first is None:
        return not_seen("no request carries a token")
    given = Proof(first[0].number, "answer's token", first[0].token or "")
    return passed(f"{carried_count} tokens stay where they belong", given, first[1])


def _given(seen: Seen, session: str, request: Request) -> list[Request]:
    """Return the answers whose token the session may carry at a request, the last at the end.

    One is out of date when the next was asked for after it and had come.
    """
    mine = [
        one
        for one in seen.requests
        if one.token is not None
        and one.origin == "first"
        and seen.said(one).session == session
        and one.answered_s < request.at_s
    ]
    mine.sort(key=lambda one: one.answered_s)
    newest_ask = max((one.at_s for one in mine), default=0.0)
    return [one for one in mine if one.answered_s >= newest_ask]


def _carried(seen: Seen, request: Request) -> Proof | None:
    names = [c.name for d in seen.dialects for c in d.carriers if c.role == "affinity"]
    for name in names:
        if (value := request.header(name)) is not None:
            return Proof(request.number, name, value)
    return None


def _may_carry(seen: Seen, giver: Request, request: Request) -> bool:
    """Tell whether a token was given to the request's session, or to the one it inherits from."""
    said, of = seen.said(request), seen.said(giver)
    if of.session is None or said.session == of.session:
        return True
    return said.parent == of.session and (said.fork == "inherit" or _is_continued(request))


def _is_continued(request: Request) -> bool:
    return request.place is not None and request.place.continues is not None
