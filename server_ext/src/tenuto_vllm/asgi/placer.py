"""From what a request says to the rank it goes to, by the state of the running engine."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from tenuto_vllm import _wire, logs
from tenuto_vllm.asgi.in_flight import InFlight
from tenuto_vllm.asgi.rank_header import asked_tokens, put_rank, read_rank, take_rank
from tenuto_vllm.asgi.ranks import Ranks
from tenuto_vllm.asgi.shadow import Shadow
from tenuto_vllm.asgi.types import Scope
from tenuto_vllm.asgi.visit import Visit
from tenuto_vllm.carriers import Said
from tenuto_vllm.config import Settings
from tenuto_vllm.metrics import Counters
from tenuto_vllm.model import EngineView, Placement
from tenuto_vllm.news import News
from tenuto_vllm.placement import Content, Ledger, Pending, by_hash, home_of, open_ranks, place
from tenuto_vllm.placement.place import begins
from tenuto_vllm.placement.token import is_cold, token_of
from tenuto_vllm.standing import Standing


class Placer:
    """Holds this process's load, and a bounded ledger of what it has seen."""

    def __init__(self, settings: Settings, counters: Counters) -> None:
        self.in_flight = InFlight()
        self.pending = Pending()
        self._ranks = Ranks(settings, counters)
        self._settings = settings
        self._counters = counters
        self._unkeyed = 0
        self._content = Content() if settings.content else None
        self._shadow = Shadow(counters) if settings.shadow else None

    @property
    def ledger(self) -> Ledger:
        """What was seen of the sessions."""
        return self._ranks.ledger

    @property
    def standing(self) -> Standing:
        """What was ordered of the ranks; of no engine until one was asked."""
        return self._ranks.standing

    @property
    def instance(self) -> str:
        """The engine's name; empty until one was asked."""
        return self._ranks.instance

    @property
    def is_shadow(self) -> bool:
        """Whether nothing is to be changed, only counted."""
        return self._shadow is not None

    @property
    def reads_content(self) -> bool:
        """Whether prompts of no session are told apart by their tokens."""
        return self._content is not None

    def without_rank(self, scope: Scope) -> tuple[Scope, int | None]:
        """Take the rank from outside off a request; return it when it is to be trusted."""
        if self._shadow is not None:
            return scope, None
        scope, given = take_rank(scope)
        if not given or not self._settings.trust_rank:
            return scope, None
        try:
            view = self._ranks.view(scope)
            return scope, None if view is None else read_rank(given, view.ranks())
        except Exception:
            self._counters.drop("placement")
            return scope, None

    def visit(self, scope: Scope, said: Said, trusted: int | None) -> Visit | None:
        """Place a request, or return None to leave it to vLLM.

        Args:
            scope: the request's own; its rank is written into the headers in it.
            said: what the request says of itself.
            trusted: from `without_rank`.
        """
        try:
            visit = self._visit(scope, said.markers, said.echoes, trusted)
        except Exception:
            self._counters.drop("placement")
            visit = None
        if visit is None and trusted is not None:
            put_rank(scope, trusted)
        return visit

    def content(self, scope: Scope, tokens: Sequence[int]) -> Visit | None:
        """Place a request by what its prompt begins with, where that is asked for.

        Args:
            scope: the request's own.
            tokens: ids of the prompt's tokens, shape (tokens,).
        """
        try:
            session = self._content.session(tokens) if self._content is not None else None
            view = self._ranks.view(scope)
            if session is None or view is None or self._ranks.follow(view) == 1:
                return None
            markers = _wire.Markers(session)
            visit = self._about(self._hashed(session, view), markers, scope, time.monotonic())
            self._counters.carriers["content"] += 1
            self._counters.place(visit.placement.why, visit.placement.rank)
        except Exception:
            self._counters.drop("placement")
            return None
        return visit

    def begin(self, visit: Visit) -> None:
        """Count a request that is on its way."""
        rank = visit.placement.rank
        self.in_flight.begin(rank)
        self.pending.begin(rank, visit.expected)
        if visit.token is not None and self.ledger.ranks > 1:
            self.ledger.sent(visit.session, rank, visit.turn, visit.begun_s)

    def served(self, visit: Visit | None, rank: int, prompt_tokens: int) -> None:
        """Learn from the first token of an answer.

        Args:
            visit: of the request; None for one that vLLM placed.
            rank: that served it.
            prompt_tokens: length of its prompt.
        """
        if self.ledger.ranks == 1:
            return
        now_s = time.monotonic()
        if visit is None or visit.token is None:
            self._unkeyed += 1
            passing = f"#{self._unkeyed}"
            self._begun(passing, rank, prompt_tokens, chosen=rank, found=0, now_s=now_s)
            return
        chosen = visit.placement.rank
        held = visit.held if chosen == rank else self.ledger.held(visit.session, rank)
        found = min(held, prompt_tokens)
        self._begun(visit.session, rank, prompt_tokens, chosen=chosen, found=found, now_s=now_s)
        if chosen == rank and self.in_flight.of(rank) == 1:
            self.pending.took(prompt_tokens - found, now_s - visit.begun_s)

    def _begun(
        self, session: str, rank: int, tokens: int, *, chosen: int, found: int, now_s: float
    ) -> None:
        if self._shadow is None:
            self.ledger.begun(session, rank, tokens, now_s, found)
            self._counters.compute(rank, tokens - found)
        else:
            self._shadow.served(
                session,
                tokens,
                now_s,
                ours=(self.ledger, chosen),
                stock=(self._ranks.stock, rank),
            )

    def over(self, visit: Visit) -> None:
        """Take back what `begin` counted as running."""
        self.in_flight.end(visit.placement.rank)
        if visit.token is not None:
            self.ledger.over(visit.session)

    def emptied(self) -> None:
        """Take all homes to be lost: the caches have been emptied."""
        try:
            self._ranks.emptied(range(self.ledger.ranks))
        except Exception:
            self._counters.drop("placement")

    def hear(self, news: News) -> None:
        """Forget sessions that have ended."""
        for session in news.ended:
            self.ledger.ended(session)

    def ranks(self, scope: Scope) -> int:
        """Return how many ranks there are; 0 when there is no engine to ask."""
        try:
            view = self._ranks.view(scope)
            return self._ranks.follow(view) if view is not None else 0
        except Exception:
            return 0

    def loads(self, scope: Scope) -> Sequence[float]:
        """Return the load of each rank as placement weighs it; nothing without an engine."""
        try:
            view = self._ranks.view(scope)
            return self._loads(view) if view is not None else ()
        except Exception:
            return ()

    def _visit(
        self, scope: Scope, markers: _wire.Markers | None, echoes: bool, trusted: int | None
    ) -> Visit | None:
        view = self._ranks.view(scope)
        if view is None:
            return None
        now_s, ranks = time.monotonic(), self._ranks.follow(view)
        if markers is None and trusted is None:
            trusted = self._around_closed(view)
            if trusted is None:
                return None
        if markers is None:
            visit = Visit(Placement(trusted or 0, "unkeyed"), None, "", None, now_s, 0, 0)
        else:
            placement = self._choose(markers, echoes, view, trusted, now_s)
            visit = self._about(placement, markers, scope, now_s)
        rank, why = visit.placement.rank, visit.placement.why
        self._counters.place(why, rank)
        logs.tell(logging.DEBUG, "placed", session=visit.session, rank=rank, why=why)
        if ranks > 1 and self._shadow is None:
            put_rank(scope, rank)
        return visit

    def _choose(
        self,
        markers: _wire.Markers,
        echoes: bool,
        view: EngineView,
        trusted: int | None,
        now_s: float,
    ) -> Placement:
        ranks = self.ledger.ranks
        if trusted is not None:
            return Placement(trusted, "unkeyed")
        named = home_of(markers, self._ranks.instance, ranks)
        if named is None and not echoes:
            # A later turn could not find back to a first one that went by load.
            return self._hashed(markers.session, view)
        if ranks == 1:
            return named or Placement(0, "first" if begins(markers) else "hash")
        if named is None and self._shadow is not None:
            named = self._shadow.home(self.ledger, markers.session)
        placement = place(
            markers,
            named,
            ledger=self.ledger,
            pending=self.pending,
            loads=lambda: self._loads(view),
            now_s=now_s,
            closed=self._ranks.closed(view),
            is_cold=named is not None
            and markers.affinity is not None
            and is_cold(markers.affinity, self.standing.epoch(named.rank)),
        )
        if placement.why == "moved" and named is not None:
            said = {"session": markers.session, "home": named.rank, "rank": placement.rank}
            logs.tell(logging.INFO, "moved", **said)
        return placement

    def _around_closed(self, view: EngineView) -> int | None:
        """Return the least busy open rank where some are closed, of which vLLM knows nothing."""
        closed = self._ranks.closed(view)
        if not closed or self._shadow is not None:
            return None
        loads = self._loads(view)
        # Of equally busy ones each in turn.
        first = self._unkeyed % len(loads)
        among = open_ranks(len(loads), closed) or range(len(loads))
        return min(among, key=lambda rank: (loads[rank], (rank - first) % len(loads)))

    def _hashed(self, session: str, view: EngineView) -> Placement:
        ranks = self.ledger.ranks
        among = open_ranks(ranks, self._ranks.closed(view))
        return Placement(by_hash(session, ranks, among), "hash")

    def _about(
        self, placement: Placement, markers: _wire.Markers, scope: Scope, now_s: float
    ) -> Visit:
        rank, session, turn = placement.rank, markers.session, markers.turn
        whose = markers.parent if placement.why == "parent" and markers.parent else session
        held = self.ledger.held(whose, rank)
        seat = self.ledger.seat(whose)
        known = asked_tokens(scope) if seat is None else seat.tokens + (turn.append or 0)
        token = None
        if placement.why != "auxiliary":
            token = token_of(self._ranks.instance, rank, self.standing.epoch(rank))
        return Visit(placement, token, session, turn.n, now_s, held, max(0, known - held))

    def _loads(self, view: EngineView) -> Sequence[float]:
        """Return the engine's load, no less than what this process has just sent."""
        ranks = self.ledger.ranks
        sent = self.in_flight.counts(ranks)
        # In a dry run the engine's load follows from vLLM's choices, not from ours.
        known = () if self._shadow is not None else self._ranks.loads(view)
        if len(known) != ranks:
            return [float(own) for own in sent]
        return [max(load, own) for load, own in zip(known, sent, strict=True)]
