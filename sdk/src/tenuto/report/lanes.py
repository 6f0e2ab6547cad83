"""Where the boxes of a timeline go, and what they are called. Pure; seconds, not pixels."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tenuto.results import TurnResult

SessionKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Lane:
    """One rank's turns, packed into rows so that no two of a row overlap.

    Attributes:
        rank: the rank; None for turns whose server did not say.
        rows: each with its turns in order of time; at least one row.
    """

    rank: int | None
    rows: tuple[tuple[TurnResult, ...], ...]


def lanes(results: Sequence[TurnResult], *, ranks: int) -> tuple[Lane, ...]:
    """Return one lane for each rank, and one for unknown ranks when there are any."""
    keys: list[int | None] = list(range(ranks))
    if any(result.rank is None for result in results):
        keys.append(None)
    return tuple(
        Lane(rank, _packed([result for result in results if result.rank == rank])) for rank in keys
    )


def moves(results: Sequence[TurnResult]) -> tuple[tuple[TurnResult, TurnResult], ...]:
    """Return the pairs of following turns of a session that two different ranks served."""
    by_session: dict[SessionKey, list[TurnResult]] = {}
    for result in sorted(results, key=lambda result: result.turn):
        by_session.setdefault(_key(result), []).append(result)
    return tuple(
        (before, after)
        for turns in by_session.values()
        for before, after in itertools.pairwise(turns)
        if before.rank != after.rank
    )


def letters(results: Sequence[TurnResult]) -> dict[str, str]:
    """Return a capital letter for each agent name, from the name where one is free."""
    chosen: dict[str, str] = {}
    for agent in dict.fromkeys(result.agent for result in results):
        wanted = [letter for letter in agent.upper() if "A" <= letter <= "Z"]
        spare = [chr(code) for code in range(ord("A"), ord("Z") + 1)]
        free = [letter for letter in [*wanted, *spare] if letter not in chosen.values()]
        chosen[agent] = free[0] if free else "?"
    return chosen


def codes(results: Sequence[TurnResult]) -> dict[SessionKey, str]:
    """Return a short name for each session: its agent's letter, numbered if not alone."""
    letter_of = letters(results)
    sessions = sorted({(result.agent, *_key(result)) for result in results})
    named: dict[SessionKey, str] = {}
    for agent, letter in letter_of.items():
        alike = [(trace, session) for name, trace, session in sessions if name == agent]
        for number, key in enumerate(alike, start=1):
            named[key] = f"{letter}{number}" if len(alike) > 1 else letter
    return named


def _key(result: TurnResult) -> SessionKey:
    return result.trace, result.session


def _packed(results: Sequence[TurnResult]) -> tuple[tuple[TurnResult, ...], ...]:
    rows: list[list[TurnResult]] = [[]]
    for result in sorted(results, key=lambda result: result.start_s):
        fitting = [row for row in rows if not row or row[-1].end_s <= result.start_s]
        if fitting:
            fitting[0].append(result)
        else:
            rows.append([result])
    return tuple(tuple(row) for row in rows)
