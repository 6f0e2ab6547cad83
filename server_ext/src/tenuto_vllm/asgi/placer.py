"""From what a request says to the rank it goes to, by the state of the running engine."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from tenuto_vllm import _wire, logs
from tenuto_vllm.asgi.rank_header import put_rank, read_rank, take_rank
from tenuto_vllm.asgi.ranks import Ranks
from tenuto_vllm.asgi.shadow import Shadow
from tenuto_vllm.asgi.traffic import Traffic
from tenuto_vllm.asgi.types import Scope
from tenuto_vllm.asgi.visit import Visit, asked_tokens, passing
from tenuto_vllm.carriers import Said
from tenuto_vllm.config import Settings
from tenuto_vllm.metrics import Counters
from tenuto_vllm.model import EngineView, Placement
from tenuto_vllm.news import News
from tenuto_vllm.placement import Content, Ledger, by_hash, home_of, open_ranks, place
from tenuto_vllm.placement.place import begins, inherits
from tenuto_vllm.placement.token import is_cold, token_of
from tenuto_vllm.standing import Standing


class Placer:
    """Chooses ranks; what this process has seen of them is bounded.

    Attributes:
        traffic: the requests on their way.
    """

    def __init__(self, settings: Settings, counters: Counters) -> None:
        self._ranks = Ranks(settings, counters)
        self._settings = settings
        self._counters = counters
        self._around = 0
        self._content = Content() if settings.content else None
        self._shadow = Shadow(counters) if settings.shadow else None
        self.traffic = Traffic(self._ranks, counters, self._shadow)

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
            view = self._ranks.view(scope)
            if self._content is None or view is None or self._ranks.follow(view) == 1:
                return None
            session, now_s = self._content.session(tokens), time.monotonic()
            if session is not None:
                placement = self._hashed(session, view)
                return self._about(placement, _wire.Markers(session), scope, now_s)
            rank = self._around_closed(view)
            return None if rank is None else passing(rank, now_s)
        except Exception:
            self._counters.drop("placement")
            return None

    def told_by_content(self, visit: Visit) -> None:
        """Count a request that its prompt has placed."""
        if visit.session:
            self._counters.carriers["content"] += 1
        self._counters.place(visit.placement.why, visit.placement.rank)

    def emptied(self, scope: Scope) -> None:
        """Take all homes to be lost: the caches have been emptied."""
        if ranks := self.ranks(scope):
            try:
                self._ranks.emptied(range(ranks))
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

    def unfit(self, scope: Scope) -> frozenset[int]:
        """Return the ranks that the engine knows to be unfit."""
        view = self._ranks.view(scope)
        return frozenset() if view is None else self._ranks.unfit(view)

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
            # What is told by content is not known before the prompt is cut into tokens.
            trusted = self._around_closed(view) if self._content is None else None
            if trusted is None:
                return None
        if markers is None:
            visit = passing(trusted or 0, now_s)
        else:
            placement = self._choose(markers, echoes, view, trusted, now_s)
            visit = self._about(placement, markers, scope, now_s)
        rank, why = visit.placement.rank, visit.placement.why
        self._counters.place(why, rank)
        if logs.LOG.isEnabledFor(logging.DEBUG):
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
        named = token_home = home_of(markers, self._ranks.instance, ranks)
        is_auxiliary = markers.turn.kind == "auxiliary"
        if named is None and not echoes and not is_auxiliary:
            # A later turn could not find back to a first one that went by load.
            return self._hashed(markers.session, view)
        if ranks == 1 and is_auxiliary:
            return Placement(0, "auxiliary")
        if ranks == 1:
            return named or Placement(0, "first" if begins(markers) else "hash")
        if named is None and self._shadow is not None:
            seat = self.ledger.seat(markers.session)
            named = None if seat is None else Placement(seat.rank, "home")
        placement = place(
            markers,
            named,
            ledger=self.ledger,
            pending=self.traffic.pending,
            loads=lambda: self._loads(view),
            now_s=now_s,
            closed=self._ranks.closed(view),
            is_cold=token_home is not None
            and markers.affinity is not None
            and is_cold(markers.affinity, self.standing.epoch(token_home.rank)),
        )
        if placement.why == "moved" and named is not None and self._shadow is None:
            logs.tell(logging.INFO, "moved", home=named.rank, rank=placement.rank)
        return placement

    def _around_closed(self, view: EngineView) -> int | None:
        """Return the least busy open rank where some are closed, of which vLLM knows nothing."""
        closed = self._ranks.closed(view)
        if not closed or self._shadow is not None:
            return None
        loads = self._loads(view)
        # Of equally busy ones each in turn.
        self._around += 1
        first = self._around % len(loads)
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
        whose = (markers.parent if inherits(markers) else None) or session
        held = self.ledger.held(whose, rank, turn.keep)
        seat = self.ledger.seat(whose)
        known = asked_tokens(scope)
        if seat is not None:
            kept = seat.tokens if turn.keep is None else min(turn.keep, seat.tokens)
            known = kept + (turn.append or 0)
        token = None
        if placement.why != "auxiliary":
            token = token_of(self._ranks.instance, rank, self.standing.epoch(rank))
        return Visit(placement, token, session, turn.n, now_s, held, max(0, known - held))

    def _loads(self, view: EngineView) -> Sequence[float]:
        """Return the engine's load, no less than what this process has just sent."""
        ranks = self.ledger.ranks
        # In a dry run the engine's load follows from vLLM's choices, not from ours.
        known = () if self._shadow is not None else self._ranks.loads(view)
        loads = list(known) if len(known) == ranks else [0.0] * ranks
        for rank, own in self.traffic.in_flight.items():
            if rank < ranks and own > loads[rank]:
                loads[rank] = float(own)
        return loads
