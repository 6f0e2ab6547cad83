"""What is asked about a model, and what is advised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Kind = Literal["full attention", "chunked attention", "sliding window", "linear state", "no cache"]
Role = Literal["prefill", "decode"]


class Flag(NamedTuple):
    """One flag of `vllm serve`, or a variable of its environment.

    Attributes:
        name: with its dashes.
        value: empty for a switch.
        why: one sentence or a few.
        is_needed: it belongs on the command line; else only where `why` applies.
    """

    name: str
    value: str
    why: str
    is_needed: bool = True


class Side(NamedTuple):
    """One side of prefill and decode apart.

    Attributes:
        role: what its servers are for.
        gpus: that this side's servers have together; None where nobody said it.
        is_bidirectional: prefill fetches what only decode has.
        lease_s: whole seconds for which prefill keeps what was not fetched; None for vLLM's 30.
    """

    role: Role
    gpus: int | None = None
    is_bidirectional: bool = False
    lease_s: int | None = None


class Advice(NamedTuple):
    """What is advised for a model.

    Attributes:
        kind: how its layers remember a prompt.
        layers: the same in words, with the window.
        flags: of `vllm serve`.
        notes: sentences on what no flag does.
        role: of the server; None for one that does both.
        environment: variables that it is started with.
    """

    kind: Kind
    layers: str
    flags: tuple[Flag, ...]
    notes: tuple[str, ...]
    role: Role | None = None
    environment: tuple[Flag, ...] = ()


def count(text: Mapping[str, Any], *keys: str) -> int:
    """Return the first of the keys that holds a number above 0, else 0."""
    for key in keys:
        value = text.get(key)
        if isinstance(value, int) and value > 0:
            return value
    return 0
