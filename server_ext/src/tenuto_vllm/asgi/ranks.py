"""The ranks behind this process, followed as they grow, shrink, fail and lose their caches."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Sequence

from tenuto_vllm import logs
from tenuto_vllm.asgi.types import Scope
from tenuto_vllm.config import Settings
from tenuto_vllm.engine import seam, spans, transfers
from tenuto_vllm.engine.view import VllmView
from tenuto_vllm.metrics import Counters
from tenuto_vllm.model import EngineView
from tenuto_vllm.placement import Ledger
from tenuto_vllm.standing import Standing

_NOT_SHARED = (
    "no folder for what the API processes share could be had, so each knows what it has heard; "
    "TENUTO_STATE_DIR names another place for it"
)


class Ranks:
    """What is known of the ranks of one engine; it begins anew for another one.

    Attributes:
        instance: the engine's name, behind that of its endpoint; empty until one was asked.
        ledger: what was seen of the sessions.
        stock: in a dry run, what vLLM's own choices have put on the ranks.
        standing: what was ordered of the ranks.
    """

    def __init__(self, settings: Settings, counters: Counters) -> None:
        self.instance: str = ""
        self.ledger = Ledger(1)
        self.stock = Ledger(1)
        self.standing = Standing()
        self._settings = settings
        self._counters = counters
        self._vllm: VllmView | None = None
        # Unfit ranks, with the epochs of their caches as they became so.
        self._unfit: dict[int, int] = {}

    def view(self, scope: Scope) -> EngineView | None:
        """Return the engine of a request's application, if it has one."""
        state = getattr(scope.get("app"), "state", None)
        view: EngineView | None = getattr(state, "tenuto_view", None)
        client = getattr(state, "engine_client", None)
        if view is not None or client is None:
            return view
        if self._vllm is None or self._vllm.engine_client is not client:
            self._vllm = VllmView(client)
            seam.install(client)
            if not self._settings.shadow:
                spans.install(client)
                transfers.install(client)
        return self._vllm

    def follow(self, view: EngineView) -> int:
        """Take over what has changed of the engine; return how many ranks it has."""
        ranks, instance = view.ranks(), view.instance()
        if self._settings.endpoint:
            instance = f"{self._settings.endpoint}-{instance}"
        if instance != self.instance:
            self.instance = instance
            self.standing = Standing(instance, self._settings.state_dir)
            if not self.standing.is_shared:
                logs.tell(logging.WARNING, "not_shared", about=_NOT_SHARED)
            self.ledger, self.stock = self._ledger(view, ranks), self._ledger(view, ranks)
        elif ranks != self.ledger.ranks:
            logs.tell(logging.INFO, "ranks", before=self.ledger.ranks, ranks=ranks)
            self.standing.removed(range(ranks, self.ledger.ranks))
            self.ledger.resize(ranks)
            self.stock.resize(ranks)
        self._forget(self.standing.look(time.monotonic()))
        self._counters.stand(ranks, self.standing.drained())
        return ranks

    def closed(self, view: EngineView) -> Collection[int]:
        """Return the ranks that take nothing more; of all ranks those that are unfit, or none."""
        unfit = self.unfit(view)
        if self._unfit.keys() != unfit:
            back = [rank for rank in self._unfit if rank not in unfit]
            self.standing.lost(back, self._unfit)
            self._forget(back)
            epochs = {rank: self.standing.epoch(rank) for rank in unfit}
            self._unfit = epochs | {rank: self._unfit[rank] for rank in unfit & self._unfit.keys()}
        drained = self.standing.drained()
        if not drained and not unfit:
            return frozenset()
        ranks = self.ledger.ranks
        for closed in (drained | unfit, unfit):
            here = {rank for rank in closed if rank < ranks}
            if len(here) < ranks:
                return here
        return frozenset()

    def emptied(self, ranks: Iterable[int]) -> None:
        """Take the homes on these ranks to be lost, in every process of the server."""
        gone = list(ranks)
        self.standing.lost(gone)
        self._forget(gone)
        logs.tell(logging.INFO, "caches_emptied", ranks=gone)

    def loads(self, view: EngineView) -> Sequence[float]:
        """Return the load of each rank; nothing where it cannot be had, since it only prefers.

        An engine that grows may tell it of fewer ranks than it has.
        """
        try:
            return view.loads()
        except Exception:
            self._counters.drop("load")
            return ()

    def unfit(self, view: EngineView) -> frozenset[int]:
        """Return the ranks that the engine knows to be unfit; none where it cannot be asked."""
        try:
            return view.dead()
        except Exception:
            self._counters.drop("placement")
            return frozenset()

    def _forget(self, emptied: Iterable[int]) -> None:
        for rank in emptied:
            if rank < self.ledger.ranks:
                self.ledger.emptied(rank)
                self.stock.emptied(rank)

    def _ledger(self, view: EngineView, ranks: int) -> Ledger:
        try:
            capacity = view.capacity()
        except Exception:
            capacity = None
        return Ledger(ranks, capacity, most_sessions=self._settings.sessions)
