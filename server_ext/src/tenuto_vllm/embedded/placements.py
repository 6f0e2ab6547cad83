"""Which rank a call goes to, by the policies that ours are compared with, and by ours. Pure.

| name | rank |
|---|---|
| `least-loaded` | stock vLLM's rule: the least loaded, ties in rotation |
| `round-robin` | one after the other |
| `user-hash` | by hash of the user |
| `session-hash` | by hash of the run: all its agents together |
| `agent-hash` | by hash of the session: each agent by itself |
| `session-sticky` | the run's home; the least loaded on its first turn |
| `subagent-keyed` | the session's home; the least loaded on each agent's first turn |
| `prefix-oracle` | the longest prefix in any cache, then the least loaded |
| `tenuto` | `tenuto_vllm.placement`, with the token that a client echoes |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tenuto_vllm._wire import Markers, Turn
from tenuto_vllm.embedded.stock import RankLoad
from tenuto_vllm.embedded.stock import place as stock
from tenuto_vllm.model import Placement as Chosen
from tenuto_vllm.placement import Ledger, Pending, by_hash, place


@dataclass(frozen=True, slots=True)
class Asking:
    """What a placement may know of a call and of the ranks.

    Attributes:
        session: id of the session.
        run: id of the run: the root session's.
        user: id of the user.
        parent: id of the parent session, empty without one.
        turn: index in the session.
        inherits: its session begins with its parent's context.
        keep: leading tokens of the turn before that it has too; None for all.
        count: calls that were placed before it.
        home: rank of the session's last answer; None without one.
        run_home: rank of the run's first answer.
        parent_home: rank of the parent session's last answer.
        loads: gives one for each rank.
        recent: gives the fading count of sessions begun on each rank.
        ledger: what our placement has seen.
        pending: what waits on the ranks.
        now_s: the time.
        found: cached leading blocks of the prompt on a rank.
    """

    session: str
    run: str
    user: str
    parent: str
    turn: int
    inherits: bool
    keep: int | None
    count: int
    home: int | None
    run_home: int | None
    parent_home: int | None
    loads: Callable[[], Sequence[RankLoad]]
    recent: Callable[[], Sequence[float]]
    found: Callable[[int], int]
    ledger: Ledger
    pending: Pending
    now_s: float


Placement = Callable[[Asking], int]


def _least_loaded(asking: Asking) -> int:
    loads = asking.loads()
    return stock(loads, asking.count % len(loads))[0]


def _round_robin(asking: Asking) -> int:
    return asking.count % asking.ledger.ranks


def _user_hash(asking: Asking) -> int:
    return by_hash(asking.user, asking.ledger.ranks)


def _session_hash(asking: Asking) -> int:
    return by_hash(asking.run, asking.ledger.ranks)


def _agent_hash(asking: Asking) -> int:
    return by_hash(asking.session, asking.ledger.ranks)


def _sticky(asking: Asking) -> int:
    return _fewest(asking) if asking.run_home is None else asking.run_home


def _subagent_keyed(asking: Asking) -> int:
    return _fewest(asking) if asking.home is None else asking.home


def _prefix_oracle(asking: Asking) -> int:
    found = [asking.found(rank) for rank in range(asking.ledger.ranks)]
    best = max(found)
    ranks = [rank for rank, blocks in enumerate(found) if blocks == best]
    loads, recent = asking.loads(), asking.recent()
    return min(ranks, key=lambda rank: (loads[rank].inflight, recent[rank]))


def _tenuto(asking: Asking) -> int:
    named = None
    if asking.home is not None:
        named = Chosen(asking.home, "home")
    elif asking.inherits and asking.turn == 0 and asking.parent_home is not None:
        named = Chosen(asking.parent_home, "parent")
    fork = "inherit" if asking.inherits else None
    turn = Turn(n=asking.turn, fork=fork, keep=asking.keep)
    markers = Markers(session=asking.session, parent=asking.parent or None, turn=turn)

    return place(
        markers,
        named,
        ledger=asking.ledger,
        pending=asking.pending,
        loads=lambda: [float(load.inflight) for load in asking.loads()],
        now_s=asking.now_s,
    ).rank


def _fewest(asking: Asking) -> int:
    """Return the least loaded rank; agents mostly wait, so few recent sessions tell more."""
    start, loads, recent = asking.count, asking.loads(), asking.recent()
    ranks = range(len(loads))
    return min(
        ranks,
        key=lambda rank: (
            loads[rank].inflight,
            round(recent[rank], 6),
            (rank - start) % len(ranks),
        ),
    )


PLACEMENTS: Mapping[str, Placement] = {
    "least-loaded": _least_loaded,
    "round-robin": _round_robin,
    "user-hash": _user_hash,
    "session-hash": _session_hash,
    "agent-hash": _agent_hash,
    "session-sticky": _sticky,
    "subagent-keyed": _subagent_keyed,
    "prefix-oracle": _prefix_oracle,
    "tenuto": _tenuto,
}
