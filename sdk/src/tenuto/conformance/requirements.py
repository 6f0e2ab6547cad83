"""Each requirement of docs/protocol.md: how it is checked, or why the wire does not show it.

Below them stand the rules that the protocol states without an id, and that any harness can
be held to in its own dialect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tenuto.conformance.checks import (
    identity,
    news,
    program,
    sessions,
    tokens,
    turn_words,
    turns,
    wire,
)
from tenuto.conformance.dialects import Role
from tenuto.conformance.seen import Seen
from tenuto.conformance.verdicts import Verdict, not_expressible, not_seen


@dataclass(frozen=True, slots=True)
class Check:
    """A requirement that a recording can show.

    Attributes:
        find: looks at a recording.
        how: what makes it seen.
        needs: roles that the dialect must have a word for.
        needs_marks: it says nothing about a program that marks no call.
        after: ids of others that come first: where they are broken it cannot be told.
    """

    find: Callable[[Seen], Verdict]
    how: str
    needs: frozenset[Role] = frozenset()
    needs_marks: bool = True
    after: tuple[str, ...] = ()

    def __call__(self, seen: Seen) -> Verdict:
        """Return what a recording shows."""
        if self.needs_marks and not seen.marked:
            return not_seen("no call carries a session", has_remedy=False)
        if missing := sorted(self.needs - seen.roles):
            names = " + ".join(dialect.name for dialect in seen.dialects)
            return not_expressible(f"{names} has no word for {', '.join(missing)}")
        return self.find(seen)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A requirement that no client's requests show."""

    status: Literal["server", "hidden"]
    why: str

    def __call__(self, seen: Seen) -> Verdict:
        """Return why it is not looked at."""
        del seen
        return Verdict(self.status, self.why)


def _needs(*roles: Role) -> frozenset[Role]:
    return frozenset(roles)


_PLACES = Elsewhere("server", "where a server puts a request")
_READS = Elsewhere("server", "where a server finds a session")
_PASSES = Elsewhere("server", "what a server does with a request")

_STABLE = ("id-context",)
_APART = ("id-context", "id-instance")

_CALLS = "make calls in a session"
_TWICE = "name the run TENUTO_CONFORMANCE_NAME and let the kit run the program twice (--twice)"
_CUE = "end a prompt with a cue, such as [tenuto unmarked] (docs/conformance.md)"
_AGENTS = "offer a tool that starts a subagent, such as `task`"
_ASIDE = "make a single call while an agent is at work"
_END = "say that a session has ended"
_LOOP = "let the agent call a tool, or go on with a history"

REQUIREMENTS: dict[str, Check | Elsewhere] = {
    "id-shape": Check(identity.shape, _CALLS),
    "id-keyed": Check(identity.keyed, _TWICE, needs_marks=False),
    "id-derived": Check(identity.derived, _TWICE, after=_STABLE),
    "id-instance": Check(sessions.instance, "run two agents at once, each for two turns or more"),
    "id-context": Check(sessions.context, _LOOP),
    "id-turn": Check(turns.turn, _LOOP, _needs("n"), after=_APART),
    "id-carried": Elsewhere("hidden", "which process makes a call"),
    "id-fork": Elsewhere("hidden", "which process makes a call"),
    "id-unmarked": Check(identity.unmarked, _CUE, needs_marks=False),
    "wire-size": Check(wire.size, _CALLS),
    "turn-phase": Check(turn_words.phase, _LOOP, _needs("n"), after=_APART),
    "turn-tokens": Check(turn_words.tokens, _LOOP, _needs("n"), after=_APART),
    "turn-wait": Elsewhere("hidden", "what a program expects, and how long it has waited before"),
    "turn-attempt": Check(turn_words.attempt, _CALLS, _needs("n"), after=_APART),
    "wire-roundtrip": Elsewhere("hidden", "it compares what is encoded with what is decoded"),
    "wire-total": Check(wire.total, _CALLS),
    "wire-duplicate": Check(wire.duplicate, _CALLS),
    "wire-caller-wins": Check(wire.caller_wins, _CUE, needs_marks=False),
    "wire-redirect": Check(wire.redirect, "use a client that follows redirects"),
    "wire-token": Check(tokens.origin, _LOOP, after=_APART),
    "wire-public": Elsewhere("hidden", "the kit's server is on a private address"),
    "wire-refused": Elsewhere("hidden", "the script refuses no field: other clients would end"),
    "wire-no-target": Check(wire.no_target, _CALLS, needs_marks=False),
    "place-home": _PLACES,
    "place-moved": _PLACES,
    "place-closed": _PLACES,
    "place-cold": _PLACES,
    "place-first": _PLACES,
    "place-auxiliary": _PLACES,
    "place-hash": _PLACES,
    "place-stale": _PLACES,
    "place-live": _PLACES,
    "place-no-map": _PLACES,
    "place-unmarked": _PASSES,
    "carrier-order": _READS,
    "carrier-alias": _READS,
    "carrier-id": _READS,
    "carrier-xargs": _READS,
    "carrier-baggage": _READS,
    "carrier-hash": _PLACES,
    "carrier-body": _READS,
    "carrier-total": _READS,
    "news-told": Check(news.told, _LOOP, _needs("n")),
    "news-turns": Check(news.turns, _LOOP, _needs("n"), after=("id-shape",)),
    "news-end": Check(news.ended, _END, _needs("n"), after=("id-shape",)),
    "news-bounds": Check(news.bounds, _LOOP, _needs("n")),
    "news-advisory": _PLACES,
    "fail-open": Check(program.fail_open, "go on for three turns in one history"),
    "fail-rank-stripped": _PASSES,
    "fail-passthrough": _PASSES,
    "fail-load-returns": _PASSES,
    "fail-private": Elsewhere("hidden", "logs, metrics and exceptions are not on the wire"),
}

RULES: dict[str, Check | Elsewhere] = {
    "parent-named": Check(sessions.parent, _AGENTS, _needs("parent"), after=_STABLE),
    "affinity-echo": Check(tokens.echo, _LOOP, _needs("affinity"), after=_APART),
    "auxiliary": Check(sessions.auxiliary, _ASIDE, after=_APART),
}

ALL = {**REQUIREMENTS, **RULES}
