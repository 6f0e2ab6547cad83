"""The placement rule.

| the request carries | rank | why |
|---|---|---|
| a token of this server with a rank it has | the token's | `home` |
| the same, on the first turn of a child that inherits its parent's context | the token's | `parent` |
| no such token, first turn (`n` is 0) | least loaded; fewest recent sessions; highest weight | `first` |
| neither | highest rendezvous weight | `hash` |
"""  # noqa: E501 - a table row

from __future__ import annotations

from collections.abc import Sequence

from tenuto_vllm._wire import Markers, parse_affinity
from tenuto_vllm.model import Placement
from tenuto_vllm.placement.rendezvous import by_hash


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
    inherits = markers.turn.n == 0 and markers.turn.fork == "inherit"
    return Placement(parts[1], "parent" if inherits else "home")


def place(markers: Markers, loads: Sequence[float], recent: Sequence[float]) -> Placement:
    """Choose the home of a session that names none. Pure.

    Args:
        markers: what the request says of itself.
        loads: requests on each rank now, shape (ranks,), ranks >= 1.
        recent: sessions lately begun on each rank, shape (ranks,).

    Returns:
        On a first turn the least loaded rank; ties go to the fewest recent sessions,
        and then by hash, so that on idle ranks a session that comes back without its
        token tends to where it was. Later turns go by hash alone: load says nothing of
        where their cache is.
    """
    if markers.turn.n != 0:
        return Placement(by_hash(markers.session, len(loads)), "hash")
    free = _least(loads, range(len(loads)))
    if len(free) > 1:
        free = _least(recent, free)
    return Placement(free[by_hash(markers.session, len(free))], "first")


def _least(values: Sequence[float], ranks: Sequence[int]) -> Sequence[int]:
    """Return those of `ranks` whose value is the least; all of them when they are equal."""
    known = values if len(ranks) == len(values) else [values[rank] for rank in ranks]
    least = min(known)
    if known.count(least) == len(known):
        return ranks
    return [rank for rank in ranks if values[rank] == least]
