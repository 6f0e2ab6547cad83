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
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tenuto_vllm.retention.held import Held, Wait

_PROTECTED_SHARE = 0.8
_TOOL_WAIT_S = 120.0
# Most waits are a tool's, so one of which nothing is known is taken for that.
_RETURN_S: Mapping[Wait, float] = {"tool": 9.0, "user": 300.0, "unknown": 9.0}


class Standing(NamedTuple):
    """Where blocks stand in the order of eviction at a time.

    Attributes:
        key: the least goes first; of equal ones what was given back first.
        until_s: it stays so before this time.
    """

    key: tuple[float, ...]
    until_s: float = math.inf


class Retention(NamedTuple):
    """A policy.

    Attributes:
        name: as it is chosen.
        standing: of blocks at a time; None keeps them oldest first.
        protected_share: of the pool, that blocks which were found may have before they go
            with the others, oldest first; None treats them alike.
        tells_hits_apart: whether found and computed blocks of a request are held apart.
        is_oracle: whether it needs to know the future.
    """

    name: str
    standing: Callable[[Held, float], Standing] | None = None
    protected_share: float | None = None
    tells_hits_apart: bool = False
    is_oracle: bool = False


def _drop_final(one: Held, _now_s: float) -> Standing:
    return Standing((not one.is_final, one.released_s))


def _tool_wait(one: Held, now_s: float) -> Standing:
    is_protected = one.wait == "tool" and now_s - one.released_s < _TOOL_WAIT_S
    key = (not one.is_final, is_protected, one.released_s)
    return Standing(key, _before(one.released_s + _TOOL_WAIT_S) if is_protected else math.inf)


def _expected(one: Held, now_s: float) -> Standing:
    return _farthest(one, now_s, _RETURN_S[one.wait])


def _hinted(one: Held, now_s: float) -> Standing:
    if one.expected_s is None:
        return _expected(one, now_s)
    return _farthest(one, now_s, one.expected_s - one.released_s)


def _farthest(one: Held, now_s: float, wait_s: float) -> Standing:
    if one.is_final or one.is_superseded:
        return Standing((-math.inf, one.released_s))
    wait_s = max(wait_s, 0.1)
    overdue = (now_s - one.released_s) / wait_s
    if overdue >= 1.0:
        wait_s *= 2.0 ** (math.floor(math.log2(overdue)) + 1)
    expected_s = one.released_s + wait_s
    return Standing((-expected_s, one.released_s), _before(expected_s))


def _belady(one: Held, _now_s: float) -> Standing:
    return Standing((-one.next_s, one.released_s))


def _before(time_s: float) -> float:
    """Return a time so little earlier that rounding cannot have passed `time_s`."""
    return time_s - 1e-12 * abs(time_s)


RETENTIONS: Mapping[str, Retention] = {
    one.name: one
    for one in (
        Retention("lru"),
        Retention("slru", protected_share=_PROTECTED_SHARE, tells_hits_apart=True),
        Retention("drop-final", _drop_final),
        Retention("tool-wait", _tool_wait),
        Retention("expected-return", _expected),
        Retention("hinted", _hinted),
        Retention("belady", _belady, is_oracle=True),
    )
}
