"""Our counters on vLLM's own `/metrics`, where prometheus_client is installed beside it.

| metric | label | counts |
|---|---|---|
| `tenuto_placed_requests_total` | `why` | requests that were placed, by what decided |
| `tenuto_rank_requests_total` | `rank` | the same by rank |
| `tenuto_rank_uncached_tokens_total` | `rank` | prompt tokens that it had most likely to compute |
| `tenuto_ignored_markers_total` | `kind` | malformed markers, and steps of ours that failed |

With several API processes vLLM sums them up (prometheus_client's multi-process mode).
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any


class _Nothing:
    """Stands where prometheus_client is not installed."""

    def __init__(self, *_: Any) -> None:
        """Take what a counter takes."""

    def labels(self, *_: Any) -> _Nothing:
        """Return itself."""
        return self

    def inc(self, _amount: float = 1) -> None:
        """Count nothing."""


class Metrics:
    """The counters of one process; each call takes about a microsecond."""

    def __init__(self, counter: Any) -> None:
        families = {
            name: counter(f"tenuto_{name}", about, [label])
            for name, label, about in (
                ("placed_requests", "why", "Requests that were placed"),
                ("rank_requests", "rank", "Placed requests of each rank"),
                ("rank_uncached_tokens", "rank", "Prompt tokens that a rank had to compute"),
                ("ignored_markers", "kind", "Malformed markers, and failed steps of tenuto's own"),
            )
        }

        @cache
        def child(name: str, value: str | int) -> Any:
            # `labels` takes a lock and builds a key; there are only so many.
            return families[name].labels(value)

        self._child: Any = child

    def placed(self, why: str, rank: int) -> None:
        """Count a request that was placed."""
        self._child("placed_requests", why).inc()
        self._child("rank_requests", rank).inc()

    def computed(self, rank: int, tokens: int) -> None:
        """Count prompt tokens that a rank had to compute."""
        self._child("rank_uncached_tokens", rank).inc(tokens)

    def ignored(self, kind: str) -> None:
        """Count a marker that was ignored."""
        self._child("ignored_markers", kind).inc()


@cache
def metrics() -> Metrics:
    """Return this process's counters: a registry takes each name once."""
    try:
        client: Any = importlib.import_module("prometheus_client")
        return Metrics(client.Counter)
    except Exception:
        return Metrics(_Nothing)
