"""The placement rule.

| the request | rank | why |
|---|---|---|
| is auxiliary | the least crowded; it leaves no home | `auxiliary` |
| carries a token of this server with a rank it has | the token's | `home` |
| the same, on the first turn of a child that inherits its parent's context | the token's | `parent` |
| the same, but the rank is closed or has lost that context, or the wait there costs more than to compute it elsewhere | the least crowded, or the one with the least wait | `moved` |
| the same, but of that context less than half is left or wanted, and the rank has more than its share to compute | the least crowded | `moved` |
| has no such token, but says `n=0` or brings one of another server: it will echo the next | the least crowded, or where the session is known to be warm | `first`, `home` |
| neither | highest rendezvous weight | `hash` |

Closed ranks are drained, or dead; nothing goes there, unless all are. From an open one a session
moves once a minute at most.
"""  # noqa: E501 - a table row

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from tenuto_vllm._wire import Markers, parse_affinity
from tenuto_vllm.model import Placement
from tenuto_vllm.placement.ledger import Ledger
from tenuto_vllm.placement.pending import Pending
from tenuto_vllm.placement.rendezvous import by_hash
from tenuto_vllm.placement.weigh import (
    LEAST_STAY_S,
    crowding,
    has_surplus,
    lightest,
    pays_to_move,
)

# Below it nobody looks at the other ranks.
_SHORT_WAIT_S = 1.0
# Of its context; a home that is good for less is left when it has more than its share to do.
_LITTLE = 0.5


def home_of(markers: Markers, instance: str, ranks: int) -> Placement | None:
    """Return the placement that the echoed token names, or None when it names none.

    Args:
        markers: what the request says of itself.
        instance: this server's name; a token of another server says nothing here.
        ranks: how many ranks there are; a rank that is gone says nothing either.
    """
    parts = parse_affinity(markers.affinity) if markers.affinity else None
    if parts is None or parts[0] != instance or parts[1] >= ranks:
        return None
    return Placement(parts[1], "parent" if inherits(markers) else "home")


def inherits(markers: Markers) -> bool:
    """Whether a turn begins with the context of its session's parent."""
    return markers.turn.n == 0 and markers.turn.fork == "inherit"


def place(
    markers: Markers,
    named: Placement | None,
    *,
    ledger: Ledger,
    pending: Pending,
    loads: Callable[[], Sequence[float]],
    now_s: float,
    closed: Collection[int] = (),
    is_cold: bool = False,
) -> Placement:
    """Choose the rank of a request.

    Args:
        markers: what the request says of itself.
        named: what its token says, from `home_of`.
        ledger: what was seen of the sessions; it has as many ranks as there are.
        pending: what waits on the ranks.
        loads: gives the requests on each rank now; called only where load has a say.
        now_s: the time.
        closed: ranks that take nothing more; not all of them.
        is_cold: the rank that the token names has lost its cache since it gave it.
    """
    session, turn = markers.session, markers.turn

    def least(home: int | None = None) -> int:
        crowded = crowding(loads(), ledger.live(), ledger.computed())
        return lightest(crowded, session, home, closed)

    if turn.kind == "auxiliary":
        return Placement(least(), "auxiliary")
    if named is None and begins(markers):
        named = _known(session, ledger, closed)
        if named is None:
            return Placement(least(), "first")
    if named is None:
        return Placement(by_hash(session, ledger.ranks, open_ranks(ledger.ranks, closed)), "hash")
    if is_cold or named.rank in closed:
        rank = least(named.rank)
    elif named.why == "parent":
        whose = markers.parent or session
        rank = _stay_or_move(whose, named.rank, ledger, pending, session, closed=closed)
    elif _has_just_moved(session, ledger, now_s):
        rank = named.rank
    elif _is_cheap_to_move(markers, named.rank, ledger):
        rank = least(named.rank)
    else:
        rank = _stay_or_move(
            session, named.rank, ledger, pending, session, closed=closed, keep=turn.keep
        )
    return named if rank == named.rank else Placement(rank, "moved")


def open_ranks(ranks: int, closed: Collection[int]) -> list[int] | None:
    """Return the ranks that are not closed; None for all."""
    return [rank for rank in range(ranks) if rank not in closed] if closed else None


def begins(markers: Markers) -> bool:
    """Whether a session that names no home here will echo the one that it is given.

    Its first turn will, and so will one that brings another server's token, as after a restart.
    """
    if markers.turn.n == 0:
        return True
    return markers.affinity is not None and parse_affinity(markers.affinity) is not None


def _known(session: str, ledger: Ledger, closed: Collection[int]) -> Placement | None:
    """Return the home of a session that brings no token of this server, if it has one.

    It has while a turn of it runs, so that turns sent at once share what the first computes, and
    once one has become warm.
    """
    seat = ledger.seat(session)
    if seat is None or seat.rank in closed:
        return None
    if not seat.running and not ledger.held(session, seat.rank):
        return None
    if ledger.has_lost(session, seat.rank, seat.turn):
        return None
    return Placement(seat.rank, "home")


def _has_just_moved(session: str, ledger: Ledger, now_s: float) -> bool:
    seat = ledger.seat(session)
    return seat is not None and seat.moved_s is not None and now_s - seat.moved_s < LEAST_STAY_S


def _is_cheap_to_move(markers: Markers, home: int, ledger: Ledger) -> bool:
    """Whether a home has next to nothing of a session, or little and more than its share to do."""
    session, turn = markers.session, markers.turn
    if ledger.has_lost(session, home, turn.n):
        return True
    is_little = ledger.use(session, home, turn.n, turn.keep) < _LITTLE
    return is_little and has_surplus(ledger.computed(), home)


def _stay_or_move(
    whose: str,
    home: int,
    ledger: Ledger,
    pending: Pending,
    session: str,
    *,
    closed: Collection[int],
    keep: int | None = None,
) -> int:
    """Return the rank of a call whose context is at home.

    Args:
        whose: session that has the context.
        home: rank that has it.
        ledger: what was seen of the sessions.
        pending: what waits on the ranks.
        session: whose call it is.
        closed: ranks that take nothing more.
        keep: leading tokens of the context that the call has too; None for all.
    """
    wait_s = pending.wait_s(home)
    seat = ledger.seat(whose)
    if wait_s <= _SHORT_WAIT_S or seat is None or seat.rank != home:
        return home
    waits_s = {rank: pending.wait_s(rank) for rank in range(ledger.ranks) if rank not in closed}
    least_s = min(waits_s.values())
    held = ledger.held(whose, home, keep)
    moves = pays_to_move(held_s=held / pending.tokens_per_s, wait_s=wait_s, least_wait_s=least_s)
    if not moves:
        return home
    return by_hash(session, ledger.ranks, [rank for rank, s in waits_s.items() if s == least_s])
