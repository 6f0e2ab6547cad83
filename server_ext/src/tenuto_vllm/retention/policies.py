"""Orders of eviction.

| name | first to go | source |
|---|---|---|
| `lru` | what was given back longest ago | vLLM's free queue |
| `slru` | what was used once, oldest first; what was used again when it has 80 % of the pool | Karedla et al., "Caching strategies to improve disk system performance", 1994 |
| `drop-final` | sessions that said they are over, then as `lru` | the client's final marker |
| `tool-wait` | as `drop-final`, but for 120 s after a tool call later than all else | two classes |
| `expected-return` | who is expected back last: 9 s after a tool call or an unknown end, 300 s after an answer to a person, doubled each time it passes; superseded and final ones at once | medians of the Weka corpus |
| `hinted` | the same, with the client's own expectation where there is one | `gap` of `X-Agent-Turn` |
| `belady` | what is really used last | Belady, "A study of replacement algorithms", 1966; an oracle |

Within one `Held` the tail of the prompt goes before its head, as in vLLM.
"""  # noqa: E501 - a table row

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tenuto_vllm.retention.held import Held, Wait

Order = Callable[[Sequence[Held], float, int], Sequence[int]]

_PROTECTED_SHARE = 0.8
_TOOL_WAIT_S = 120.0
# Most waits are a tool's, so one of which nothing is known is taken for that.
_RETURN_S: Mapping[Wait, float] = {"tool": 9.0, "user": 300.0, "unknown": 9.0}


class Retention(NamedTuple):
    """A policy.

    Attributes:
        name: as it is chosen.
        order: of what is held, oldest first, at a time, in a pool of so many blocks: its
            indices, first to go first. None keeps them oldest first.
        tells_hits_apart: whether found and computed blocks of a request are held apart.
        is_oracle: whether it needs to know the future.
    """

    name: str
    order: Order | None = None
    tells_hits_apart: bool = False
    is_oracle: bool = False


def _by(key: Callable[[Held, float], tuple[float, ...]]) -> Order:
    def order(held: Sequence[Held], now_s: float, _total: int) -> Sequence[int]:
        return sorted(range(len(held)), key=lambda index: key(held[index], now_s))

    return order


def _slru(held: Sequence[Held], _now_s: float, total: int) -> Sequence[int]:
    over = sum(one.blocks for one in held if one.was_hit) - _PROTECTED_SHARE * total
    once: list[int] = []
    again: list[int] = []
    for index, one in enumerate(held):
        if one.was_hit and over <= 0:
            again.append(index)
            continue
        once.append(index)
        if one.was_hit:
            over -= one.blocks
    return once + again


def _drop_final(one: Held, _now_s: float) -> tuple[float, float]:
    return (not one.is_final, one.released_s)


def _tool_wait(one: Held, now_s: float) -> tuple[float, ...]:
    is_protected = one.wait == "tool" and now_s - one.released_s < _TOOL_WAIT_S
    return (not one.is_final, is_protected, one.released_s)


def _expected(one: Held, now_s: float) -> tuple[float, float]:
    return _farthest(one, now_s, _RETURN_S[one.wait])


def _hinted(one: Held, now_s: float) -> tuple[float, float]:
    if one.expected_s is None:
        return _expected(one, now_s)
    return _farthest(one, now_s, one.expected_s - one.released_s)


def _farthest(one: Held, now_s: float, wait_s: float) -> tuple[float, float]:
    if one.is_final or one.is_superseded:
        return (-math.inf, one.released_s)
    wait_s = max(wait_s, 0.1)
    overdue = (now_s - one.released_s) / wait_s
    if overdue >= 1.0:
        wait_s *= 2.0 ** (math.floor(math.log2(overdue)) + 1)
    return (-(one.released_s + wait_s), one.released_s)


def _belady(one: Held, _now_s: float) -> tuple[float, float]:
    return (-one.next_s, one.released_s)


RETENTIONS: Mapping[str, Retention] = {
    one.name: one
    for one in (
        Retention("lru"),
        Retention("slru", _slru, tells_hits_apart=True),
        Retention("drop-final", _by(_drop_final)),
        Retention("tool-wait", _by(_tool_wait)),
        Retention("expected-return", _by(_expected)),
        Retention("hinted", _by(_hinted)),
        Retention("belady", _by(_belady), is_oracle=True),
    )
}
