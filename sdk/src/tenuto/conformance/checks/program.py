"""The program as a whole."""

from __future__ import annotations

from tenuto.conformance.seen import Seen
from tenuto.conformance.verdicts import Proof, Verdict, failed, not_seen, passed


def fail_open(seen: Seen) -> Verdict:
    """fail-open: an answer whose markers are malformed is an answer."""
    garbled = next((r for r in seen.requests if r.was_garbled and seen.said(r).session), None)
    if garbled is None:
        return not_seen("no marked call was answered with malformed markers")
    given = Proof(garbled.number, "answer's markers", "malformed")
    later = (r for r in seen.calls if r.place is not None and r.place.continues == garbled.number)
    if (follower := next(later, None)) is not None:
        return passed("the program goes on from it", given, seen.shown(follower, "session"))
    if seen.exit_status == 0:
        return passed("the program ends well after it", given)
    if not seen.exit_status or any(r.number > garbled.number for r in seen.calls):
        return not_seen("nothing was asked after an answer with malformed markers")
    return failed("the program fails after an answer with malformed markers", given)
