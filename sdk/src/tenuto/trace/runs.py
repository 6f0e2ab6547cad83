"""Arithmetic on runs of block ids, without writing the ids out. Pure.

A prompt of 142,000 tokens has 2,200 blocks in three or four runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Runs = tuple[tuple[int, int], ...]


def merged(runs: Iterable[Sequence[int]]) -> Runs:
    """Return the same ids in as few runs as can be: equal ids give equal runs.

    Args:
        runs: pairs (first id, how many); empty ones are dropped.
    """
    made: list[tuple[int, int]] = []
    for first, length in runs:
        if length < 1:
            continue
        if made and sum(made[-1]) == first:
            made[-1] = (made[-1][0], made[-1][1] + length)
        else:
            made.append((first, length))
    return tuple(made)


def runs_of(ids: Sequence[int]) -> Runs:
    """Return ids that are written out one by one as runs."""
    made: list[tuple[int, int]] = []
    first = at = 0
    for place, block in enumerate(ids):
        if place and block == ids[place - 1] + 1:
            continue
        if place:
            made.append((first, place - at))
        first, at = block, place
    if ids:
        made.append((first, len(ids) - at))
    return tuple(made)


def ids_of(runs: Iterable[Sequence[int]]) -> list[int]:
    """Return the ids one by one."""
    ids: list[int] = []
    for first, length in runs:
        ids.extend(range(first, first + length))
    return ids


def taken(runs: Runs, count: int) -> Runs:
    """Return the first `count` ids of a prompt, or all when it has fewer."""
    made: list[tuple[int, int]] = []
    for first, length in runs:
        if count <= 0:
            break
        made.append((first, min(length, count)))
        count -= length
    return tuple(made)


def dropped(runs: Runs, count: int) -> Runs:
    """Return what is left of a prompt without its first `count` ids."""
    made: list[tuple[int, int]] = []
    for first, length in runs:
        if count < length:
            skipped = max(0, count)
            made.append((first + skipped, length - skipped))
        count -= length
    return tuple(made)


def shared(left: Runs, right: Runs) -> int:
    """Return how many ids two prompts have in common before the first that differs.

    Args:
        left: as `merged` returns them.
        right: as `merged` returns them.
    """
    count = 0
    for (ours, our_length), (theirs, their_length) in zip(left, right, strict=False):
        if ours != theirs:
            return count
        count += min(our_length, their_length)
        if our_length != their_length:
            return count
    return count
