"""Which calls of a session are tries of one turn, and the order of its turns. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tenuto.trace.event import CallEvent


class Call(NamedTuple):
    """A call and the line that it stood in."""

    line: int | None
    event: CallEvent


Tries = list[Call]
"""The tries of one turn, by attempt; never empty."""


def turns_in(calls: Iterable[Call], *, is_recorded: bool) -> list[Tries]:
    """Return the turns of a session, each as its tries.

    | calls                                        | turns                                   |
    |----------------------------------------------|-----------------------------------------|
    | one turn number, rising attempts             | one, of those tries                     |
    | a turn number and attempt that was there     | a further one: its program began anew   |
    | answered, and the turn was answered before   | a further one: it was asked again       |
    | an attempt that could be of several turns    | of the latest that lacks an answer      |
    | turn numbers that stand for one turn each    | in the order of the numbers             |
    | one that stands for several                  | in the order of time                    |

    Args:
        calls: of the session, in any order.
        is_recorded: their times are a clock's, so that what follows can be told by them.
    """
    by_number: dict[int, list[Tries]] = {}
    for call in sorted(calls, key=lambda one: (one.event.attempt, one.event.start_s)):
        same = by_number.setdefault(call.event.turn, [])
        before = [tries for tries in same if _may_follow(call, tries)]
        if before:
            start_s = call.event.start_s
            max(before, key=lambda tries: _nearness(tries, start_s)).append(call)
        else:
            same.append([call])
    turns = [tries for number in sorted(by_number) for tries in by_number[number]]
    if _is_repeated(turns) or (is_recorded and _begins_late(turns)):
        turns.sort(key=lambda tries: (tries[0].event.start_s, tries[0].event.turn))
    return turns


def gaps_in(turns: Sequence[Tries]) -> list[tuple[int, Tries]]:
    """Return turns whose number does not follow another's, with the number below it."""
    first: dict[int, Tries] = {}
    for tries in turns:
        first.setdefault(tries[0].event.turn, tries)
    pairs = itertools.pairwise([-1, *sorted(first)])
    return [(below, first[number]) for below, number in pairs if number != below + 1]


def is_answered(call: Call) -> bool:
    """Whether a try was answered whole."""
    return call.event.error is None and call.event.end_s is not None


def _may_follow(call: Call, tries: Tries) -> bool:
    if tries[-1].event.attempt >= call.event.attempt:
        return False
    return not is_answered(call) or not any(map(is_answered, tries))


def _nearness(tries: Tries, start_s: float) -> tuple[bool, bool, float]:
    began_s = tries[0].event.start_s
    return began_s <= start_s, not is_answered(tries[-1]), began_s


def _is_repeated(turns: Sequence[Tries]) -> bool:
    return len({tries[0].event.turn for tries in turns}) < len(turns)


def _begins_late(turns: Sequence[Tries]) -> bool:
    """Whether the first turn was made after a later one: the file lacks what was before that."""
    if not turns:
        return False
    first = turns[0][0].event
    return (first.turn, first.attempt) == (0, 0) and any(
        call.event.start_s >= 0 and (call.event.end_s or first.start_s) < first.start_s
        for tries in turns[1:]
        for call in tries
    )
