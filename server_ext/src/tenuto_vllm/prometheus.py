"""Our numbers on vLLM's own `/metrics`, where prometheus_client is installed beside it.

| metric | label | tells |
|---|---|---|
| `tenuto_placed_requests_total` | `why` | requests that were placed, by what decided |
| `tenuto_rank_requests_total` | `rank` | the same by rank |
| `tenuto_rank_uncached_tokens_total` | `rank` | prompt tokens that it had most likely to compute |
| `tenuto_ignored_markers_total` | `kind` | malformed markers, and steps of ours that failed |
| `tenuto_shadow_requests_total` | `agrees` | requests of `TENUTO_SHADOW`; `yes` where vLLM's rank was ours |
| `tenuto_shadow_uncached_tokens_total` | | prompt tokens that our rank would have had to compute |
| `tenuto_rank_drained` | `rank` | 1 while the rank is drained |
| `tenuto_retention_blocks` | `rank`, `segment` | blocks of the cache, by the order in which they go |
| `tenuto_retention_leases` | `rank` | leases in force |
| `tenuto_retention_events_total` | `rank`, `event` | leases by what became of them, since the start |
| `tenuto_retention_tokens_total` | `rank`, `event` | the same in tokens |

With several API processes vLLM sums the counters up (prometheus_client's multi-process mode). Of
the gauges the last value stands: all processes read what is drained in one place, and what is
retained from the engines, which count it. So the last two are gauges of numbers that only grow:
a counter of what each process has read would be summed up.
"""  # noqa: E501 - a table row

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from typing import Any, get_args

from tenuto_vllm.model import Why

_LABELLED = (
    ("placed_requests", "why", "Requests that were placed"),
    ("rank_requests", "rank", "Placed requests of each rank"),
    ("rank_uncached_tokens", "rank", "Prompt tokens that a rank had to compute"),
    ("ignored_markers", "kind", "Malformed markers, and failed steps of tenuto's own"),
    ("shadow_requests", "agrees", "Requests whose placement was imagined"),
)

SEGMENTS = ("evict_first", "ordinary", "leased")
_RETAINED = (
    ("retention_blocks", "Blocks of a rank's cache by when they are evicted", "segment"),
    ("retention_leases", "Leases in force on a rank"),
    ("retention_events_total", "Leases of a rank by what became of them", "event"),
    ("retention_tokens_total", "Tokens of a rank's leases by what became of them", "event"),
)


class _Nothing:
    """Stands where prometheus_client is not installed."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Take what a counter takes."""

    def labels(self, *_: Any) -> _Nothing:
        """Return itself."""
        return self

    def inc(self, _amount: float = 1) -> None:
        """Count nothing."""

    def set(self, _value: float) -> None:
        """Show nothing."""


class Metrics:
    """The numbers of one process; each call takes about a microsecond."""

    def __init__(self, counter: Any, gauge: Any) -> None:
        families = {
            name: counter(f"tenuto_{name}", about, [label]) for name, label, about in _LABELLED
        }
        self._imagined = counter(
            "tenuto_shadow_uncached_tokens", "Prompt tokens that tenuto's rank would have computed"
        )

        def newest(name: str, about: str, *labels: str) -> Any:
            labelled = ["rank", *labels]
            return gauge(f"tenuto_{name}", about, labelled, multiprocess_mode="mostrecent")

        self._drained = newest("rank_drained", "1 while a rank is drained")
        self._retained = {name: newest(name, about, *more) for name, about, *more in _RETAINED}

        @cache
        def child(name: str, value: str | int) -> Any:
            # `labels` takes a lock and builds a key; there are only so many.
            return families[name].labels(value)

        self._child: Any = child
        # A share of what never happened is 0, not absent.
        for why in get_args(Why):
            child("placed_requests", why)

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

    def imagined(self, tokens: int, *, agrees: bool) -> None:
        """Count a request of a dry run, and what our rank would have had to compute."""
        self._child("shadow_requests", "yes" if agrees else "no").inc()
        self._imagined.inc(tokens)

    def drained(self, rank: int, is_drained: bool) -> None:
        """Show whether a rank is drained, and that it is there."""
        self._child("rank_requests", rank)
        self._child("rank_uncached_tokens", rank)
        self._drained.labels(rank).set(int(is_drained))

    def retained(self, rank: int, state: Mapping[str, Any]) -> None:
        """Show what a rank says of its cache; the keys are those of `tenuto_state`."""
        shown = self._retained
        parts = {name: state[name] for name in SEGMENTS if name in state}
        if "blocks" in state and "free" in state:
            parts["in_use"] = state["blocks"] - state["free"]
        for segment, blocks in parts.items():
            shown["retention_blocks"].labels(rank, segment).set(blocks)
        shown["retention_leases"].labels(rank).set(state.get("leases", 0))
        for event, count in state.get("counts", {}).items():
            counted = event.removesuffix("_tokens")
            family = "retention_events_total" if counted == event else "retention_tokens_total"
            shown[family].labels(rank, counted).set(count)


@cache
def metrics() -> Metrics:
    """Return this process's numbers: a registry takes each name once."""
    try:
        client: Any = importlib.import_module("prometheus_client")
        return Metrics(client.Counter, client.Gauge)
    except Exception:
        return Metrics(_Nothing, _Nothing)
