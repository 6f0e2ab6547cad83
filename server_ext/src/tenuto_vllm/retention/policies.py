"""Orders of eviction.

| name | first to go | source |
|---|---|---|
| `lru` | what was given back longest ago | vLLM's free queue |
| `slru` | what was used once, oldest first; what was used again when it has 80 % of the pool | Karedla et al., "Caching strategies to improve disk system performance", 1994 |
| `drop-final` | sessions that said they are over, then as `lru` | the client's final marker |
| `tool-wait` | as `drop-final`, but for 120 s after a tool call later than all else | two classes |
| `expected-return` | as in `tenuto_vllm.retention.order`, with what `Waits` learns of boundaries alone | waits after a tool call, an answer to a person, neither |
| `hinted` | the same, with the client's own expectation where there is one | `gap` of `X-Agent-Turn` |
| `belady` | what is really used last | Belady, "A study of replacement algorithms", 1966; an oracle |

Within one `Held` the tail of the prompt goes before its head, as in vLLM.
"""  # noqa: E501 - a table row

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tenuto_vllm.retention.held import Held, Wait
from tenuto_vllm.retention.order import Leased, Standing, before, standing
from tenuto_vllm.retention.waits import Expectation, Waits

_PROTECTED_SHARE = 0.8
_TOOL_WAIT_S = 120.0
_WAITS: tuple[Wait, ...] = ("tool", "user", "unknown")
_UNLEARNT: Mapping[Wait, Expectation] = {wait: Waits().expect("", wait) for wait in _WAITS}


class Retention(NamedTuple):
    """A policy.

    Attributes:
        name: as it is chosen.
        standing: of blocks at a time; None keeps them oldest first.
        protected_share: of the pool, that blocks which were found may have before they go
            with the others, oldest first; None treats them alike.
        tells_hits_apart: whether found and computed blocks of a request are held apart.
        learns_waits: whether it needs what is expected of each wait.
        hears_gaps: whether that is made from what clients tell, too.
        is_oracle: whether it needs to know the future.
    """

    name: str
    standing: Callable[[Held, float], Standing] | None = None
    protected_share: float | None = None
    tells_hits_apart: bool = False
    learns_waits: bool = False
    hears_gaps: bool = False
    is_oracle: bool = False


def _drop_final(one: Held, _now_s: float) -> Standing:
    return Standing((not one.is_final, one.released_s))


def _tool_wait(one: Held, now_s: float) -> Standing:
    is_protected = one.wait == "tool" and now_s - one.released_s < _TOOL_WAIT_S
    key = (not one.is_final, is_protected, one.released_s)
    return Standing(key, before(one.released_s + _TOOL_WAIT_S) if is_protected else math.inf)


def _returning(one: Held, now_s: float) -> Standing:
    expected = one.expected or _UNLEARNT[one.wait]
    facts = Leased(
        ended_s=one.released_s,
        wait_s=expected.wait_s,
        lasts_s=expected.lasts_s,
        spread=expected.spread,
        born_s=one.born_s,
        is_active=one.is_active,
        # What no session has, nobody is expected back for.
        is_final=one.is_final or not one.session,
        is_superseded=one.is_superseded,
    )
    return standing(facts, now_s)


def _belady(one: Held, _now_s: float) -> Standing:
    return Standing((-one.next_s, one.released_s))


RETENTIONS: Mapping[str, Retention] = {
    one.name: one
    for one in (
        Retention("lru"),
        Retention("slru", protected_share=_PROTECTED_SHARE, tells_hits_apart=True),
        Retention("drop-final", _drop_final),
        Retention("tool-wait", _tool_wait),
        Retention("expected-return", _returning, learns_waits=True),
        Retention("hinted", _returning, learns_waits=True, hears_gaps=True),
        Retention("belady", _belady, is_oracle=True),
    )
}
