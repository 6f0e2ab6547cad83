"""Counters with fixed labels; no id is ever one."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tenuto_vllm import logs
from tenuto_vllm.carriers import Carrier, Said
from tenuto_vllm.model import Why
from tenuto_vllm.prometheus import metrics

STATE_PATH = "/tenuto/state"
METRICS_PATH = "/metrics"

_FAILED = {
    "placement": "the placement of a request could not be had, and vLLM's own choice stands",
    "load": "the load of a request could not be had, and vLLM's own choice stands",
    "on_news": "news of sessions could not be handed on",
    "told": "the engines could not be told of a session, and evict it as they would without that",
}


def _said(kind: str) -> str:
    return _FAILED.get(kind) or f"a malformed {kind} marker was ignored"


class Counters:
    """What one API process has seen. Each kind of dropped marker is logged once."""

    def __init__(self) -> None:
        self.placed: Counter[Why] = Counter()
        self.carriers: Counter[Carrier] = Counter()
        self.news: Counter[str] = Counter(turns=0, ended=0)
        self.shadow: Counter[str] = Counter(
            requests=0, agree=0, uncached_tokens=0, stock_uncached_tokens=0
        )
        self.dropped: Counter[str] = Counter()
        self._drained: tuple[int, frozenset[int]] = (0, frozenset())
        self._metrics = metrics()

    def place(self, why: Why, rank: int) -> None:
        """Count a request that was placed."""
        self.placed[why] += 1
        self._metrics.placed(why, rank)

    def compute(self, rank: int, tokens: int) -> None:
        """Count prompt tokens that a rank had to compute."""
        self._metrics.computed(rank, tokens)

    def imagine(self, tokens: int, stock_tokens: int, *, agrees: bool) -> None:
        """Count a request of a dry run.

        Args:
            tokens: prompt tokens that our rank would have had to compute.
            stock_tokens: the same of vLLM's rank.
            agrees: vLLM's rank was ours.
        """
        self.shadow["requests"] += 1
        self.shadow["agree"] += agrees
        self.shadow["uncached_tokens"] += tokens
        self.shadow["stock_uncached_tokens"] += stock_tokens
        self._metrics.imagined(tokens, agrees=agrees)

    def stand(self, ranks: int, drained: frozenset[int]) -> None:
        """Show which of the ranks are drained; free while nothing changes."""
        if self._drained == (ranks, drained):
            return
        before = self._drained[0]
        self._drained = (ranks, drained)
        for rank in range(max(ranks, before)):
            self._metrics.drained(rank, rank < ranks and rank in drained)

    def retain(self, rank: int, state: Mapping[str, Any]) -> None:
        """Show what a rank's scheduler says of its cache."""
        self._metrics.retained(rank, state)

    def hear(self, said: Said) -> None:
        """Count which carrier gave a session, and what was left out."""
        if said.markers is not None:
            self.carriers[said.carrier] += 1
        for kind in said.dropped:
            self.drop(kind)

    def drop(self, kind: str) -> None:
        """Count a marker that was left out, or a step of ours that failed."""
        self.dropped[kind] += 1
        self._metrics.ignored(kind)
        if self.dropped[kind] == 1:
            about = f"{_said(kind)}; further ones are counted at {STATE_PATH}"
            logs.tell(logging.WARNING, "ignored", kind=kind, about=about)
