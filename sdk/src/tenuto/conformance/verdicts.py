"""What a check finds, with the requests that prove it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

Status = Literal["pass", "fail", "not seen", "not expressible", "server", "hidden"]

_SHORT = 20
_LENGTHS = (8, 12, 16, 24, 40)


class Proof(NamedTuple):
    """One request that shows it: its number (of a second run: with `run` 2), what, and the value.

    The value is shortened to what tells it from the others; "" is an absent one.
    """

    request: int
    what: str
    value: str
    run: int = 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one check found, and why."""

    status: Status
    why: str
    proof: tuple[Proof, ...] = ()
    has_remedy: bool = True


def passed(why: str, *proof: Proof) -> Verdict:
    """Return that the requirement was seen to hold."""
    return Verdict("pass", why, _shortened(tuple(map(_printable, proof))))


def failed(why: str, *proof: Proof, whole: bool = False) -> Verdict:
    """Return that the requirement is broken; `whole` where the end of a value shows it."""
    proof = tuple(map(_printable, proof))
    return Verdict("fail", why, proof if whole else _shortened(proof))


def not_seen(why: str, *, has_remedy: bool = True) -> Verdict:
    """Return that no request shows it either way; without a remedy of its own, `why` says all."""
    return Verdict("not seen", why, has_remedy=has_remedy)


def not_expressible(why: str) -> Verdict:
    """Return that the dialect has no word for it."""
    return Verdict("not expressible", why)


def _printable(proof: Proof) -> Proof:
    # A value is the peer's, and a terminal obeys what it is sent.
    return proof._replace(value=proof.value.encode("unicode_escape").decode("ascii"))


def _shortened(proof: tuple[Proof, ...]) -> tuple[Proof, ...]:
    values = {one.value for one in proof}
    return tuple(one._replace(value=_short(one.value, values)) for one in proof)


def _short(value: str, others: Iterable[str]) -> str:
    if len(value) <= _SHORT:
        return value
    for length in _LENGTHS:
        if not any(other != value and other.startswith(value[:length]) for other in others):
            return value[:length] + "…"
    return value if len(value) <= 80 else f"{value[:60]}… ({len(value)} characters)"
