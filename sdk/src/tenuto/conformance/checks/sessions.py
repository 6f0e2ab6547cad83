"""Sessions against histories: one stays with its history, and no two histories share one."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations

from tenuto.conformance.captured import Request
from tenuto.conformance.cues import UNMARKED, cues
from tenuto.conformance.seen import History, Seen
from tenuto.conformance.verdicts import Verdict, failed, not_seen, passed

_AUXILIARY = frozenset({"auxiliary", "compaction", "compact", "memory_consolidation", "review"})


def context(seen: Seen) -> Verdict:
    """id-context: ids are the same over retries and over the turns of a history."""
    retried, why = _retries(seen)
    if why is not None:
        return why
    turns = 0
    example: tuple[Request, Request] | None = None
    for request in seen.calls:
        number = request.place.continues if request.place is not None else None
        before = seen.request(number) if number is not None else None
        if before is None or not seen.said(before).session:
            continue
        if seen.said(request).session == seen.said(before).session:
            turns += 1
            example = example or (before, request)
        elif not (_is_outside(request) or _is_fork(seen, before, request)):
            lost = "has no session" if not seen.said(request).session else "has another session"
            proof = (seen.shown(before, "session"), seen.shown(request, "session"))
            return failed(f"the next turn of a history {lost}", *proof)
    for requests in _by_session(seen).values():
        for role in ("run", "parent"):
            values = {seen.shown(r, role).value: r for r in requests if seen.said(r).session}
            if len(values) > 1:
                proof = (seen.shown(r, role) for r in list(values.values())[:2])
                return failed(f"the {role} of one session changes", *proof)
    pair = retried or example
    if pair is None:
        return not_seen("no marked call was tried again or continued")
    proof = (seen.shown(one, "session") for one in pair)
    count = sum(request.failed for request in seen.marked)
    return passed(f"the same over {count} refused tries and {turns} further turns", *proof)


def instance(seen: Seen) -> Verdict:
    """id-instance: histories that go on side by side are different sessions."""
    by_session: dict[str, list[History]] = defaultdict(list)
    for history in seen.histories:
        said = seen.said(history.first)
        if said.session and said.kind not in _AUXILIARY and _is_agent(history):
            by_session[said.session].append(history)
    for histories in by_session.values():
        for one, two in combinations(histories, 2):
            if _are_apart(one, two):
                proof = (seen.shown(one.first, "session"), seen.shown(two.first, "session"))
                return failed("two histories share one session", *proof)
    told = [h for h in seen.histories if _is_agent(h) and seen.said(h.first).session]
    for one, two in combinations(told, 2):
        if one.overlaps(two) and seen.said(one.first).session != seen.said(two.first).session:
            proof = (seen.shown(one.first, "session"), seen.shown(two.first, "session"))
            return passed(f"{len(told)} histories, told apart", *proof)
    return not_seen("no two histories went on at one time")


def parent(seen: Seen) -> Verdict:
    """parent-named: what an agent starts names the agent's session as its parent."""
    for request in seen.marked:
        if seen.said(request).parent == seen.said(request).session:
            return failed("a session names itself as its parent", seen.shown(request, "parent"))
    proven: list[tuple[Request, Request]] = []
    for history in seen.histories:
        number = history.forked_from if history.started_by is None else history.started_by[0]
        if number is None or not seen.said(history.first).session:
            continue
        starter = seen.request(number)
        expected = seen.said(starter).session
        if expected is None or expected == seen.said(history.first).session:
            continue
        if seen.said(history.first).parent != expected:
            proof = (seen.shown(starter, "session"), seen.shown(history.first, "parent"))
            return failed("a subagent does not name the session that started it", *proof)
        proven.append((starter, history.first))
    if not proven:
        return not_seen("no tool call of the agent started a subagent")
    starter, child = proven[0]
    proof = (seen.shown(starter, "session"), seen.shown(child, "parent"))
    return passed(f"{len(proven)} subagents name who started them", *proof)


def auxiliary(seen: Seen) -> Verdict:
    """auxiliary: a call beside a history says so, or has a session of its own."""
    apart: list[tuple[History, History]] = []
    for main in seen.histories:
        for aside in seen.histories:
            if not (_is_agent(main) and _is_aside(aside, main)):
                continue
            kind, session = seen.said(aside.first).kind, seen.said(aside.first).session
            if kind in _AUXILIARY or session != seen.said(main.first).session:
                apart.append((main, aside))
            elif session is not None:
                proof = (seen.shown(main.first, "session"), seen.shown(aside.first, "session"))
                return failed("a call beside a history passes for one of its turns", *proof)
    if not apart:
        return not_seen("no single call was made while a history was going on")
    main, aside = apart[0]
    role = "class" if seen.said(aside.first).kind in _AUXILIARY else "session"
    proof = (seen.shown(main.first, role), seen.shown(aside.first, role))
    return passed(f"{len(apart)} calls beside a history are told apart", *proof)


def _are_apart(one: History, two: History) -> bool:
    """Tell whether two histories cannot be one that was cut, branched off or begun anew."""
    if one.forked_from is not None or two.forked_from is not None:
        return False
    if one.started_by != two.started_by:
        return True
    return one.overlaps(two) or _opening(one) != _opening(two)


def _opening(history: History) -> str:
    return history.first.prompt.first if history.first.prompt else ""


def _is_agent(history: History) -> bool:
    return len(history.requests) > 1 or history.started_by is not None


def _is_aside(aside: History, main: History) -> bool:
    return (
        aside.forked_from is None
        and not _is_agent(aside)
        and _opening(aside) != _opening(main)
        and main.first.at_s < aside.first.at_s < main.requests[-1].at_s
    )


def _is_outside(request: Request) -> bool:
    return request.prompt is not None and UNMARKED in cues(request.prompt.asks)


def _is_fork(seen: Seen, before: Request, request: Request) -> bool:
    """Tell whether a new session goes on from another's answer and says so."""
    said = seen.said(request)
    return said.session is not None and (
        said.parent == seen.said(before).session or said.fork == "inherit"
    )


def _by_session(seen: Seen) -> dict[str, list[Request]]:
    found: dict[str, list[Request]] = defaultdict(list)
    for request in seen.marked:
        found[seen.said(request).session or ""].append(request)
    return found


def _retries(seen: Seen) -> tuple[tuple[Request, Request] | None, Verdict | None]:
    """Return two tries of one prompt in one session, or the verdict on those that differ.

    Parallel agents may ask the same, each with tries of its own; but a session whose last
    try was refused, followed by a try in a session that was not there, is one that changed.
    """
    example: tuple[Request, Request] | None = None
    by_prompt: dict[str, list[Request]] = defaultdict(list)
    for request in seen.calls:
        by_prompt[request.prompt.digest if request.prompt else ""].append(request)
    for tries in by_prompt.values():
        last: dict[str | None, Request] = {seen.said(one).session: one for one in tries}
        opened: dict[str | None, Request] = {}
        for one in tries:
            session = seen.said(one).session
            before = opened.setdefault(session, one)
            if before is not one and session is not None:
                example = example or (before, one)
        for session, given_up in last.items():
            if not given_up.failed or session is None:
                continue
            for other, began in opened.items():
                if other != session and began.at_s > given_up.at_s:
                    what = "no session" if other is None else "another session"
                    proof = (seen.shown(given_up, "session"), seen.shown(began, "session"))
                    return None, failed(f"a prompt is tried again in {what}", *proof)
    return example, None
