"""The ranks behind this process, followed as they grow, shrink, fail and lose their caches."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Sequence

from tenuto_vllm import logs
from tenuto_vllm.asgi.types import Scope
from tenuto_vllm.config import Settings
from tenuto_vllm.engine import seam
from tenuto_vllm.engine.view import VllmView
from tenuto_vllm.metrics import Counters
from tenuto_vllm.model import EngineView
from tenuto_vllm.placement import Ledger
from tenuto_vllm.standing import Standing


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
        self._dead: frozenset[int] = frozenset()

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
        return self._vllm

    def follow(self, view: EngineView) -> int:
        """Take over what has changed of the engine; return how many ranks it has."""
        ranks, instance = view.ranks(), view.instance()
        if self._settings.endpoint:
            instance = f"{self._settings.endpoint}-{instance}"
        if instance != self.instance:
            self.instance = instance
            self.standing = Standing(instance, self._settings.state_dir)
            self.ledger, self.stock = self._ledger(view, ranks), self._ledger(view, ranks)
        elif ranks != self.ledger.ranks:
            logs.tell(logging.INFO, "ranks", before=self.ledger.ranks, ranks=ranks)
            # One that comes back later is another engine.
            self.standing.lost(range(ranks, self.ledger.ranks))
            self.ledger.resize(ranks)
            self.stock.resize(ranks)
        self._forget(self.standing.look(time.monotonic()))
        self._counters.stand(ranks, self.standing.drained())
        return ranks

    def closed(self, view: EngineView) -> Collection[int]:
        """Return the ranks that take nothing more; none where that is all of them."""
        dead = self._unfit(view)
        if back := self._dead - dead:
            self.emptied(back)
        self._dead = dead
        closed = self.standing.drained() | dead
        return closed if len(closed) < self.ledger.ranks else frozenset()

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

    def _unfit(self, view: EngineView) -> frozenset[int]:
        try:
            return view.dead()
        except Exception:
            self._counters.drop("load")
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
