"""What a turn says beside its number: what opened it, how long its history is."""

from __future__ import annotations

from tenuto.conformance.captured import Request
from tenuto.conformance.reading import turn_of
from tenuto.conformance.seen import Seen
from tenuto.conformance.verdicts import Proof, Verdict, failed, not_seen, passed

_ANSWERS_TOOL = frozenset({"tool", "child"})
_WORD = "x-agent-turn"


def phase(seen: Seen) -> Verdict:
    """turn-phase: what opened a turn is what its prompt ends in."""
    proven: dict[str, Request] = {}
    for request in seen.marked:
        said = turn_of(request).phase
        if said is None or request.prompt is None:
            continue
        before = _before(seen, request)
        proof = Proof(request.number, f"{_WORD} phase", said)
        if said == "start" and before is not None:
            return failed("a turn that goes on says that it starts", proof)
        if said in _ANSWERS_TOOL and not request.prompt.after_tool:
            return failed("no tool's result opened the turn that says so", proof)
        if said == "user" and request.prompt.after_tool:
            return failed("a tool's result opened the turn, which says another", proof)
        proven.setdefault(said, request)
    if len(proven) < 2:
        return not_seen("fewer than two kinds of turn say what opened them")
    shown = [Proof(r.number, f"{_WORD} phase", said) for said, r in proven.items()]
    return passed(f"{', '.join(proven)}, each where it is so", *shown[:2])


def tokens(seen: Seen) -> Verdict:
    """turn-tokens: `prefix` is prompt and output of the last answer, as the server counted."""
    proven: list[tuple[Request, Request]] = []
    for request in seen.marked:
        before, prefix = _before(seen, request), turn_of(request).prefix
        if before is None or before.usage_tokens is None or prefix is None:
            continue
        if not _is_last_answer(seen, before, request):
            continue
        if prefix != before.usage_tokens:
            why = "`prefix` is not what the server counted for the last answer"
            return failed(why, *_counted(before, request))
        proven.append((before, request))
    if not proven:
        return not_seen("no turn after an answer with usage says `prefix`")
    return passed(f"{len(proven)} turns say what the server counted", *_counted(*proven[0]))


def attempt(seen: Seen) -> Verdict:
    """turn-attempt: the tries of a turn say the same of it, `drop` apart."""
    proven: tuple[Request, Request] | None = None
    last: dict[tuple[str, str], Request] = {}
    for request in seen.marked:
        turn = turn_of(request)
        if turn.n is None or request.prompt is None:
            continue
        key = (seen.said(request).session or "", request.prompt.digest)
        before = last.get(key)
        last[key] = request
        if before is None or turn_of(before).n != turn.n:
            continue
        same = {"attempt": None, "drop": ()}
        if turn_of(before)._replace(**same) != turn._replace(**same):
            shown = (Proof(r.number, _WORD, r.header(_WORD) or "") for r in (before, request))
            return failed("two tries of one turn say different things of it", *shown)
        proven = proven or (before, request)
    if proven is None:
        return not_seen("no turn was tried again")
    shown = (Proof(r.number, _WORD, r.header(_WORD) or "") for r in proven)
    return passed("every try says the same but for its number", *shown)


def _before(seen: Seen, request: Request) -> Request | None:
    """Return the answered request that a turn goes on from in its own session."""
    if request.place is None or request.place.continues is None:
        return None
    before = seen.request(request.place.continues)
    return before if seen.said(before).session == seen.said(request).session else None


def _is_last_answer(seen: Seen, before: Request, request: Request) -> bool:
    session = seen.said(request).session
    return not any(
        before.answered_s < one.answered_s < request.at_s
        for one in seen.requests
        if one.outcome == "answered" and one.prompt and seen.said(one).session == session
    )


def _counted(before: Request, request: Request) -> tuple[Proof, Proof]:
    return (
        Proof(before.number, "answer's tokens", str(before.usage_tokens)),
        Proof(request.number, f"{_WORD} prefix", str(turn_of(request).prefix)),
    )
