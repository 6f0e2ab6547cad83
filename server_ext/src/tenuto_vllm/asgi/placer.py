"""From what a request says to the rank it goes to, by the state of the running engine."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import NamedTuple

from tenuto_vllm import _wire
from tenuto_vllm.asgi.in_flight import InFlight
from tenuto_vllm.asgi.types import Scope
from tenuto_vllm.carriers import Said
from tenuto_vllm.config import Settings
from tenuto_vllm.engine import seam
from tenuto_vllm.engine.view import VllmView
from tenuto_vllm.metrics import Counters
from tenuto_vllm.model import EngineView, Placement
from tenuto_vllm.placement import Recent, by_hash, home_of, place

_RANK = b"x-data-parallel-rank"
_ASCII_RANK = re.compile(rb"[0-9]{1,5}")


class Visit(NamedTuple):
    """Where one request goes, and the token it is answered with; without a session none."""

    placement: Placement
    token: str | None


class Placer:
    """Holds this process's load and nothing of any session."""

    def __init__(self, settings: Settings, counters: Counters) -> None:
        self.in_flight = InFlight()
        self._settings = settings
        self._counters = counters
        self._recent = Recent()
        self._vllm: VllmView | None = None

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

    def served(self, placement: Placement) -> None:
        """Count a session that has begun; an attempt that failed has not."""
        if placement.why == "first":
            now_s, ranks = time.monotonic(), max(placement.rank + 1, len(self._recent.counts))
            self._recent = self._recent.placed(placement.rank, now_s, ranks)

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
        ranks = view.ranks()
        placement = Placement(trusted, "unkeyed") if trusted is not None else None
        token = None
        if markers is not None:
            instance = view.instance()
            placement = (
                placement
                or home_of(markers, instance, ranks)
                or self._choose(markers, echoes, view, ranks)
            )
            token = _wire.affinity_token(instance, placement.rank)
        if placement is None:
            return None
        self._counters.placed[placement.why] += 1
        if ranks > 1:
            put_rank(scope, placement.rank)
        return Visit(placement, token)

    def _choose(
        self, markers: _wire.Markers, echoes: bool, view: EngineView, ranks: int
    ) -> Placement:
        if not echoes:
            # A later turn could not find back to a first one that went by load.
            return Placement(by_hash(markers.session, ranks), "hash")
        if markers.turn.n != 0 or ranks == 1:
            # Load has no say then, so it is not read.
            return place(markers, (0.0,) * ranks, (0.0,) * ranks)
        recent = self._recent.at(time.monotonic(), ranks)
        return place(markers, self._loads(view, ranks), recent)

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
