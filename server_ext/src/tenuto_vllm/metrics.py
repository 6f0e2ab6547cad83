"""Counters with fixed labels; no id is ever one."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter

from tenuto_vllm.carriers import Carrier, Said
from tenuto_vllm.model import Why
from tenuto_vllm.prometheus import metrics

STATUS_PATH = "/tenuto/status"

_log = logging.getLogger("tenuto_vllm")

_FAILED = {
    "placement": "the placement of a request could not be had, and vLLM's own choice stands",
    "load": "the load of a request could not be had, and vLLM's own choice stands",
    "on_news": "news of sessions could not be handed on",
}


def _said(kind: str) -> str:
    return _FAILED.get(kind) or f"a malformed {kind} marker was ignored"


class Counters:
    """What one API process has seen. Each kind of dropped marker is logged once."""

    def __init__(self) -> None:
        self.placed: Counter[Why] = Counter()
        self.carriers: Counter[Carrier] = Counter()
        self.news: Counter[str] = Counter(turns=0, ended=0)
        self.dropped: Counter[str] = Counter()
        self._metrics = metrics()

    def place(self, why: Why, rank: int) -> None:
        """Count a request that was placed."""
        self.placed[why] += 1
        self._metrics.placed(why, rank)

    def compute(self, rank: int, tokens: int) -> None:
        """Count prompt tokens that a rank had to compute."""
        self._metrics.computed(rank, tokens)

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
            # A handler or filter of the server's may raise, and no request may fail by it.
            with contextlib.suppress(Exception):
                _log.warning("%s; further ones are counted at %s", _said(kind), STATUS_PATH)
