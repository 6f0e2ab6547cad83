"""A recording as the checks look at it: who said what, and which histories there were."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tenuto.conformance.captured import Request
from tenuto.conformance.dialects import Dialect, Role
from tenuto.conformance.reading import Said, detect, read
from tenuto.conformance.verdicts import Proof

_NOT_ALONE = frozenset({"baggage"})


@dataclass(frozen=True, slots=True)
class History:
    """One linear history: answered requests, each going on from the answer before.

    `forked_from` is the request whose answer it shares with another history.
    """

    requests: tuple[Request, ...]
    forked_from: int | None
    started_by: tuple[int, int] | None

    @property
    def first(self) -> Request:
        """The request that opened it."""
        return self.requests[0]

    def overlaps(self, other: History) -> bool:
        """Tell whether both were going on at one time."""
        return (
            self.first.at_s < other.requests[-1].at_s and other.first.at_s < self.requests[-1].at_s
        )


class Seen:
    """One recording of one program.

    Args:
        requests: all that arrived.
        dialects: how to read them; found out when none is given.
        name: the user's name of the run, which may not travel.
        again: a second recording of the same program.
        exit_status: the program's, None when it is not known.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        *,
        dialects: Sequence[Dialect] = (),
        name: str = "",
        again: Seen | None = None,
        exit_status: int | None = None,
    ) -> None:
        self.requests = tuple(requests)
        self.dialects = tuple(dialects) or detect(self.requests)
        self.name = name
        self.again = again
        self.exit_status = exit_status
        self._by_number = {request.number: request for request in self.requests}
        self._said = {request.number: read(request, self.dialects) for request in self.requests}

    @cached_property
    def calls(self) -> tuple[Request, ...]:
        """Requests that run a model, as the client addressed them."""
        return tuple(r for r in self.requests if r.prompt is not None and r.origin == "first")

    @cached_property
    def marked(self) -> tuple[Request, ...]:
        """The calls that name a session."""
        return tuple(request for request in self.calls if self.said(request).session)

    @cached_property
    def roles(self) -> frozenset[Role]:
        """What can be said in the dialects of this recording."""
        return frozenset[Role]().union(*(dialect.roles for dialect in self.dialects))

    @cached_property
    def marker_headers(self) -> frozenset[str]:
        """Names of headers that carry markers in the dialects of this recording."""
        names = {c.name.partition("#")[0] for dialect in self.dialects for c in dialect.carriers}
        return frozenset(n for n in names if not n.startswith("body:") and n not in _NOT_ALONE)

    @cached_property
    def histories(self) -> tuple[History, ...]:
        """All histories, in the order in which they were opened."""
        followers: dict[int | None, list[Request]] = defaultdict(list)
        for request in self.requests:
            if request.prompt is not None and request.outcome == "answered" and request.place:
                followers[request.place.continues].append(request)
        found: list[History] = []
        opened: list[tuple[Request, int | None]] = [(one, None) for one in followers.pop(None, [])]
        while opened:
            request, forked_from = opened.pop(0)
            line = [request]
            while nexts := followers.pop(line[-1].number, []):
                # What goes on from an answer in another session is a history of its own.
                own = next((r for r in nexts if self._may_follow(line[-1], r)), None)
                opened += [(other, line[-1].number) for other in nexts if other is not own]
                if own is None:
                    break
                line.append(own)
            started_by = request.place.started_by if request.place else None
            found.append(History(tuple(line), forked_from, started_by))
        return tuple(sorted(found, key=lambda history: history.first.number))

    def _may_follow(self, before: Request, after: Request) -> bool:
        one, two = self.said(before).session, self.said(after).session
        return one == two or one is None or two is None

    def said(self, request: Request) -> Said:
        """Return what a request says of itself; of a redirected one, what was first said."""
        return self._said[request.number if request.hop_of is None else request.hop_of]

    def request(self, number: int) -> Request:
        """Return a request by its number."""
        return self._by_number[number]

    def dialect_of(self, name: str) -> Dialect | None:
        """Return the dialect that a header or field was read in."""
        return next(
            (
                dialect
                for dialect in self.dialects
                if any(c.name.removeprefix("body:") == name for c in dialect.carriers)
            ),
            None,
        )

    def shown(self, request: Request, role: Role) -> Proof:
        """Return a proof: what the request, or the one that was redirected to it, says."""
        number = request.number if request.hop_of is None else request.hop_of
        said = self.said(request)
        value = {
            "session": said.session,
            "parent": said.parent,
            "run": said.run,
            "n": said.n,
            "attempt": said.attempt,
            "class": said.kind,
        }.get(role)
        return Proof(
            number,
            said.name_of(role).replace("#", " "),
            "" if value is None else str(value),
        )
