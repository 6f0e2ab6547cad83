"""Stock vLLM's placement rule, for comparison with ours. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankLoad:
    """What stock vLLM knows of one rank when it places a request.

    Attributes:
        inflight: unfinished requests that this API process sent to the rank.
        waiting: requests queued on the rank, not yet scheduled.
        running: requests scheduled on the rank.
        kv_usage: share of its blocks in use, 0..1.
    """

    inflight: int
    waiting: int
    running: int
    kv_usage: float


def place(
    loads: Sequence[RankLoad], start: int, *, given: int | None = None, client_count: int = 1
) -> tuple[int, int]:
    """Return `(rank, next_start)` as `DPLBAsyncMPClient.get_core_engine_for_request` does.

    | request                  | rank                                           | next_start |
    |--------------------------|------------------------------------------------|------------|
    | names a rank             | that one                                       | start      |
    | one rank is least loaded | the least loaded                               | start + 1  |
    | several are least loaded | the first of them, scanning round from `start` | start + 1  |

    A rank's load is `max(client_count * inflight, waiting + running)` plus, on a rank whose
    cache is over half full, `waiting * 6 * (kv_usage - 0.5)`.

    Args:
        loads: one per rank, rank order, at least one.
        start: where the scan starts, 0 <= start < len(loads).
        given: the rank that the request names, already checked; None for most.
        client_count: number of API processes in front of the ranks.
    """
    if given is not None:
        return given, start
    ranks = len(loads)
    scan = [(start + i) % ranks for i in range(ranks)]
    # min() keeps the first of equals, which is what the rotation is for.
    rank = min(scan, key=lambda r: _score(loads[r], client_count))
    return rank, (start + 1) % ranks


def _score(load: RankLoad, client_count: int) -> float:
    busy = max(client_count * load.inflight, load.waiting + load.running)
    return busy + load.waiting * 6.0 * max(0.0, load.kv_usage - 0.5)
