"""From what a request says to the rank it goes to, by the state of the running engine."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import NamedTuple

from tenuto_vllm import _wire
from tenuto_vllm.asgi.in_flight import InFlight
from tenuto_vllm.asgi.types import Message, Scope, Send
from tenuto_vllm.carriers import Said
from tenuto_vllm.config import Settings
from tenuto_vllm.engine import seam
from tenuto_vllm.engine.view import VllmView
from tenuto_vllm.metrics import Counters
from tenuto_vllm.model import EngineView, Placement
from tenuto_vllm.news import News
from tenuto_vllm.placement import Ledger, Pending, by_hash, home_of, place

_RANK = b"x-data-parallel-rank"
_ASCII_RANK = re.compile(rb"[0-9]{1,5}")


class Visit(NamedTuple):
    """Where one request goes.

    Attributes:
        placement: its rank.
        token: that it is answered with; None where it leaves no home.
        session: whose turn it is; empty without a session.
        turn: index of the turn.
        begun_s: when it was placed.
        held: tokens of its context that the rank most likely has.
        expected: tokens that the rank has most likely to compute.
    """

    placement: Placement
    token: str | None
    session: str
    turn: int | None
    begun_s: float
    held: int
    expected: int


class Placer:
    """Holds this process's load, and a bounded ledger of what it has seen."""

    def __init__(self, settings: Settings, counters: Counters) -> None:
        self.in_flight = InFlight()
        self.pending = Pending()
        self.ledger = Ledger(1)
        self._settings = settings
        self._counters = counters
        self._vllm: VllmView | None = None
        self._instance = ""
        self._unkeyed = 0

    def without_rank(self, scope: Scope) -> tuple[Scope, int | None]:
        """Take the rank from outside off a request; return it when it is to be trusted."""
        given = [value for name, value in scope["headers"] if name == _RANK]
        if not given:
            return scope, None
        kept = [header for header in scope["headers"] if header[0] != _RANK]
        scope = {**scope, "headers": kept}
        try:
            return scope, self._trusted(given, scope)
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
            self.ledger.begun(f"#{self._unkeyed}", rank, prompt_tokens, now_s)
            self._counters.compute(rank, prompt_tokens)
            return
        is_there = rank == visit.placement.rank
        held = visit.held if is_there else self.ledger.held(visit.session, rank)
        found = min(held, prompt_tokens)
        self.ledger.begun(visit.session, rank, prompt_tokens, now_s, found)
        self._counters.compute(rank, prompt_tokens - found)
        if is_there and self.in_flight.of(rank) == 1:
            self.pending.took(prompt_tokens - found, now_s - visit.begun_s)

    def over(self, visit: Visit) -> None:
        """Take back what `begin` counted as running."""
        self.in_flight.end(visit.placement.rank)

    def watching_a_reset(self, send: Send) -> Send:
        """Return a `send` that takes all homes to be lost when the caches have been emptied."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == HTTPStatus.OK:
                for rank in range(self.ledger.ranks):
                    self.ledger.emptied(rank)
            await send(message)

        return sent

    def hear(self, news: News) -> None:
        """Forget sessions that have ended."""
        for session in news.ended:
            self.ledger.ended(session)

    def ranks(self, scope: Scope) -> int:
        """Return how many ranks there are; 0 when there is no engine to ask."""
        try:
            view = self._view(scope)
            return view.ranks() if view is not None else 0
        except Exception:
            return 0

    def _trusted(self, given: list[bytes], scope: Scope) -> int | None:
        """Return a rank that is allowed, single, in ASCII digits, and one the engine has."""
        if not self._settings.trust_rank or len(given) != 1:
            return None
        view = self._view(scope)
        if view is None or _ASCII_RANK.fullmatch(given[0]) is None:
            return None
        rank = int(given[0])
        return rank if rank < view.ranks() else None

    def _visit(
        self, scope: Scope, markers: _wire.Markers | None, echoes: bool, trusted: int | None
    ) -> Visit | None:
        view = self._view(scope)
        if view is None:
            return None
        now_s, ranks, instance = time.monotonic(), view.ranks(), view.instance()
        self._follow(view, instance, ranks)
        if markers is None and trusted is None:
            return None
        if markers is None:
            visit = Visit(Placement(trusted or 0, "unkeyed"), None, "", None, now_s, 0, 0)
        else:
            placement = self._choose(markers, echoes, view, trusted, now_s)
            visit = self._about(placement, markers, instance, scope, now_s)
        self._counters.place(visit.placement.why, visit.placement.rank)
        if ranks > 1:
            put_rank(scope, visit.placement.rank)
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
        named = home_of(markers, self._instance, ranks)
        if named is None and not echoes:
            # A later turn could not find back to a first one that went by load.
            return Placement(by_hash(markers.session, ranks), "hash")
        if ranks == 1:
            return named or Placement(0, "first" if markers.turn.n == 0 else "hash")
        return place(
            markers,
            named,
            ledger=self.ledger,
            pending=self.pending,
            loads=lambda: self._loads(view, ranks),
            now_s=now_s,
        )

    def _about(
        self,
        placement: Placement,
        markers: _wire.Markers,
        instance: str,
        scope: Scope,
        now_s: float,
    ) -> Visit:
        rank, session, turn = placement.rank, markers.session, markers.turn
        whose = markers.parent if placement.why == "parent" and markers.parent else session
        held = self.ledger.held(whose, rank)
        seat = self.ledger.seat(whose)
        known = _asked_tokens(scope) if seat is None else seat.tokens + (turn.append or 0)
        token = None
        if placement.why != "auxiliary":
            token = _wire.affinity_token(instance, rank)
        return Visit(placement, token, session, turn.n, now_s, held, max(0, known - held))

    def _follow(self, view: EngineView, instance: str, ranks: int) -> None:
        """Begin anew for another engine, and follow the one there is as it grows."""
        if instance != self._instance:
            self._instance = instance
            self.ledger = Ledger(ranks, _capacity(view), most_sessions=self._settings.sessions)
        elif ranks != self.ledger.ranks:
            self.ledger.resize(ranks)

    def _loads(self, view: EngineView, ranks: int) -> Sequence[float]:
        """Return the engine's load, no less than what this process has just sent.

        A load that cannot be had, or not for each rank (as while an engine grows), is
        none: it only prefers.
        """
        try:
            known = view.loads()
        except Exception:
            self._counters.drop("load")
            known = ()
        if len(known) == ranks and not self.in_flight:
            return known
        sent = self.in_flight.counts(ranks)
        if len(known) != ranks:
            return [float(own) for own in sent]
        return [max(load, own) for load, own in zip(known, sent, strict=True)]

    def _view(self, scope: Scope) -> EngineView | None:
        state = getattr(scope.get("app"), "state", None)
        view: EngineView | None = getattr(state, "tenuto_view", None)
        client = getattr(state, "engine_client", None)
        if view is not None or client is None:
            return view
        if self._vllm is None or self._vllm.engine_client is not client:
            self._vllm = VllmView(client)
            seam.install(client)
        return self._vllm


def put_rank(scope: Scope, rank: int) -> None:
    """Write a rank into a request's headers, the list of which is left as it is."""
    scope["headers"] = [*scope["headers"], (_RANK, b"%d" % rank)]


def _capacity(view: EngineView) -> int | None:
    try:
        return view.capacity()
    except Exception:
        return None


def _asked_tokens(scope: Scope) -> int:
    """Guess the length of a prompt of which nothing is known: four bytes are a token."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) // 4 if value.isdigit() else 0
    return 0
